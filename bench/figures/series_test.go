package figures

import (
	"math"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestASeriesHasTheFiguresOfOneBenchmarkKindAndUnit(t *testing.T) {
	f, err := Read(strings.NewReader(`BenchmarkFleet/clients=10000/sqlite-2   1   40.0 stmt/s
BenchmarkFleet/clients=300/sqlite-2   1   1.5 stmt/s   7.0 rows/s
BenchmarkFleet/clients=300/mysql-2   1   2.5 stmt/s
BenchmarkFleets/clients=300/sqlite-2   1   3.5 stmt/s
BenchmarkFleet/sqlite-2   1   4.5 stmt/s
`))
	require.NoError(t, err)
	s := f.Series("Fleet", "sqlite", "stmt/s")
	require.Equal(t, len(s), 2, "points")
	assert.Equal(t, s[0], Point{300, 1.5}, "the first is")
	assert.Equal(t, s[1], Point{10_000, 40}, "the second is")
	assert.Equal(t, len(f.Series("Fleet", "postgres", "stmt/s")), 0, "points of what was not measured:")
}

func TestAPointAtWhichHeartbeatsAreLateIsNotSteady(t *testing.T) {
	f, err := Read(strings.NewReader(`BenchmarkFleet/clients=300/mysql-2   1   300 stmt/s   2.5 beat-p99-ms
BenchmarkFleet/clients=1000/mysql-2   1   1000 stmt/s   9.5 beat-p99-ms
BenchmarkFleet/clients=10000/mysql-2   1   5800 stmt/s   7988 beat-p99-ms
BenchmarkHolds/locks=10/mysql-2   1   5 list-ms
`))
	require.NoError(t, err)
	s := f.Steady("Fleet", "mysql", "stmt/s")
	require.Equal(t, len(s), 2, "points")
	assert.Equal(t, s[1], Point{1000, 1000}, "the last one is")
	assert.Equal(t, len(f.Steady("Holds", "mysql", "list-ms")), 1, "points without heartbeats:")
}

func TestALineHasTheLeastSquares(t *testing.T) {
	for name, c := range map[string]struct {
		points []Point
		want   Line
	}{
		"points on a line":   {[]Point{{1, 5}, {2, 7}, {10, 23}}, Line{3, 2}},
		"points beside it":   {[]Point{{0, 0}, {1, 2}, {2, 1}}, Line{0.5, 0.5}},
		"one point":          {[]Point{{4, 9}}, Line{9, 0}},
		"no points":          {nil, Line{}},
		"one number, thrice": {[]Point{{4, 1}, {4, 2}, {4, 3}}, Line{2, 0}},
	} {
		got := Fit(c.points)
		if math.Abs(got.At0-c.want.At0) > 1e-9 || math.Abs(got.Slope-c.want.Slope) > 1e-9 {
			t.Errorf("%s: %v: want %v", name, got, c.want)
		}
		assert.Equal(t, got.Of(2), got.At0+2*got.Slope, "its value at 2 is")
	}
}
