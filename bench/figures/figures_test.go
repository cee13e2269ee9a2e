package figures

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestFiguresAreReadByBenchmarkKindAndUnit(t *testing.T) {
	f, err := Read(strings.NewReader(`server sqlite 3.53.4, WAL
goos: linux
BenchmarkCrowd/goroutines=8,processes=4/sqlite-2   3   12.00 grants/s   4.000 reference-grants/s
BenchmarkPair/sqlite   3   7.5 p50-µs
--- FAIL: BenchmarkPair/mysql
PASS
`))
	require.NoError(t, err)
	assert.Equal(t, f.Servers["sqlite"], "3.53.4, WAL", "the version is")
	for _, c := range []struct {
		benchmark, kind, metric string
		want                    float64
		ok                      bool
	}{
		{"Crowd/goroutines=8,processes=4", "sqlite", "grants/s", 12, true},
		{"Crowd/goroutines=8,processes=4", "sqlite", "reference-grants/s", 4, true},
		{"Pair", "sqlite", "p50-µs", 7.5, true},
		{"Pair", "mysql", "p50-µs", 0, false},
	} {
		if got, ok := f.Metric(c.benchmark, c.kind, c.metric); ok != c.ok || ok && got != c.want {
			t.Errorf("%s of %s on %s is %v, %v: want %v, %v", c.metric, c.benchmark, c.kind, got, ok, c.want, c.ok)
		}
	}
}

func TestAFigureThatIsNoNumberIsAnError(t *testing.T) {
	assert.Error(t, assert.ErrOf(Read(strings.NewReader("BenchmarkPair/sqlite 3 fast p50-µs"))))
}
