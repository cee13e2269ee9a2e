package figures

import (
	"slices"
	"strconv"
	"strings"
)

// Point is a figure of a benchmark that was run with a number of things.
type Point struct{ N, Y float64 }

// Series returns a metric of a benchmark on a kind of database for each number of things that it
// was run with, in ascending order: Series("Fleet", "sqlite", "stmt/s") has the figures of
// BenchmarkFleet/clients=300/sqlite and its sisters.
func (f Figures) Series(benchmark, kind, metric string) (s []Point) {
	for key, y := range f.metrics {
		name, unit, _ := strings.Cut(key, " ")
		rest, is := strings.CutPrefix(name, benchmark+"/")
		things, of, _ := strings.Cut(rest, "/")
		_, number, _ := strings.Cut(things, "=")
		n, err := strconv.Atoi(number)
		if is && of == kind && unit == metric && err == nil {
			s = append(s, Point{N: float64(n), Y: y})
		}
	}
	slices.SortFunc(s, func(a, b Point) int { return int(a.N - b.N) })
	return s
}

// latest is how long 99 of 100 heartbeats may take, in ms, while a database keeps up with them.
const latest = 1000

// Steady returns the points of a series at which the database kept up with the heartbeats that the
// benchmark measures. Beyond, a line would show what the machine can do, and not what a client
// costs.
func (f Figures) Steady(benchmark, kind, metric string) []Point {
	busy := map[float64]bool{}
	for _, p := range f.Series(benchmark, kind, "beat-p99-ms") {
		busy[p.N] = p.Y > latest
	}
	return slices.DeleteFunc(f.Series(benchmark, kind, metric), func(p Point) bool { return busy[p.N] })
}

// Line is the straight line through a series: Y = At0 + Slope * N.
type Line struct{ At0, Slope float64 }

// Fit returns the line with the least squares. A single point has a level line.
func Fit(s []Point) Line {
	var n, y float64
	for _, p := range s {
		n += p.N / float64(len(s))
		y += p.Y / float64(len(s))
	}
	var products, squares float64
	for _, p := range s {
		products += (p.N - n) * (p.Y - y)
		squares += (p.N - n) * (p.N - n)
	}
	if squares == 0 {
		return Line{At0: y}
	}
	slope := products / squares
	return Line{At0: y - slope*n, Slope: slope}
}

// Of returns the line's value.
func (l Line) Of(n float64) float64 { return l.At0 + l.Slope*n }
