// Command plot draws the output of the benchmarks: throughput.svg and handoff.svg, in the current
// folder. It leaves out missing figures.
package main

import (
	"fmt"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/dblock-go/dblock/bench/chart"
	"github.com/dblock-go/dblock/bench/figures"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run() error {
	f, err := figures.Read(os.Stdin)
	if err != nil {
		return err
	}
	if err := throughput(f).Save("throughput.svg"); err != nil {
		return err
	}
	return handoff(f).Save("handoff.svg")
}

// throughput plots pairs per second over goroutines.
func throughput(f figures.Figures) *chart.Chart {
	c := newChart("Pairs of Lock and Unlock per second, by the goroutines of one client (higher is better)",
		"goroutines, each with names of its own", "pairs per second")
	var ticks plot.ConstantTicks
	var benchmarks []point
	for _, goroutines := range []int{1, 4, 16, 64, 256, 1000} {
		benchmarks = append(benchmarks, point{x: float64(goroutines), benchmark: fmt.Sprintf("Parallel/goroutines=%d",
			goroutines)})
		ticks = append(ticks, plot.Tick{Value: float64(goroutines), Label: fmt.Sprint(goroutines)})
	}
	c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, ticks
	curves(c, f, "dblock", "pairs/s", solid, benchmarks)
	curves(c, f, "two commits, no lock", "reference/s", dashed, benchmarks)
	return c
}

// handoff plots the time of a hand-off over percentiles.
func handoff(f figures.Figures) *chart.Chart {
	c := newChart("From Unlock to the next grant of one name that all want again at once (lower is better)",
		"percentile", "µs")
	var ticks plot.ConstantTicks
	var processes, goroutines []point
	for i, percentile := range []string{"p50", "p90", "p99", "p99.9"} {
		const benchmark = "Crowd/goroutines=32,processes=1"
		processes = append(processes, point{float64(i), benchmark, "reference-" + percentile})
		goroutines = append(goroutines, point{float64(i), benchmark, percentile})
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: percentile})
	}
	c.X.Tick.Marker = ticks
	curves(c, f, "8 processes", "-µs", solid, processes)
	curves(c, f, "32 goroutines", "-µs", dashed, goroutines)
	return c
}

var (
	solid  []vg.Length
	dashed = []vg.Length{vg.Points(4), vg.Points(3)}
)

// newChart returns a chart with a logarithmic scale.
func newChart(title, x, y string) *chart.Chart {
	c := chart.New(title, x, y)
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
	return c
}

// ticks returns 1, 2 and 5 times each power of ten from low to high.
func ticks(low, high float64) (all []plot.Tick) {
	for power := 1.; power <= high; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * power; v >= low && v <= high {
				all = append(all, plot.Tick{Value: v, Label: fmt.Sprint(int(v))})
			}
		}
	}
	return all
}

// point is a figure of a benchmark: that of the metric with the prefix.
type point struct {
	x                 float64
	benchmark, prefix string
}

// curves draws one curve for each kind of database.
func curves(c *chart.Chart, f figures.Figures, what, metric string, dashes []vg.Length, points []point) {
	for _, k := range figures.Kinds {
		var xys plotter.XYs
		for _, p := range points {
			if y, ok := f.Metric(p.benchmark, k.Name, p.prefix+metric); ok && y > 0 { // a logarithm
				xys = append(xys, plotter.XY{X: p.x, Y: y})
			}
		}
		if len(xys) == 0 {
			continue
		}
		c.Line(k, what, xys, dashes)
	}
}
