// Command plot draws the output of the benchmarks: throughput.svg and handoff.svg, in the current
// folder. It leaves out missing figures.
package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

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
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	if err := throughput(f).save("throughput.svg"); err != nil {
		return err
	}
	return handoff(f).save("handoff.svg")
}

// throughput plots pairs per second over goroutines.
func throughput(f figures.Figures) *chart {
	c := newChart("Lock and Unlock of distinct names by the goroutines of one client", "goroutines", "pairs per second")
	var ticks plot.ConstantTicks
	var benchmarks []point
	for _, goroutines := range []int{1, 4, 16, 64, 256, 1000} {
		benchmarks = append(benchmarks, point{x: float64(goroutines), benchmark: fmt.Sprintf("Parallel/goroutines=%d",
			goroutines)})
		ticks = append(ticks, plot.Tick{Value: float64(goroutines), Label: fmt.Sprint(goroutines)})
	}
	c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, ticks
	c.curves(f, "dblock", "pairs/s", solid, benchmarks)
	c.curves(f, "two bare commits", "reference/s", dashed, benchmarks)
	return c
}

// handoff plots the time of a hand-off over percentiles.
func handoff(f figures.Figures) *chart {
	c := newChart("From Unlock to the next grant of one name that all want again at once", "percentile", "µs")
	var ticks plot.ConstantTicks
	var processes, goroutines []point
	for i, percentile := range []string{"p50", "p90", "p99", "p99.9"} {
		const benchmark = "Crowd/goroutines=32,processes=1"
		processes = append(processes, point{float64(i), benchmark, "reference-" + percentile})
		goroutines = append(goroutines, point{float64(i), benchmark, percentile})
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: percentile})
	}
	c.X.Tick.Marker = ticks
	c.curves(f, "8 processes", "-µs", solid, processes)
	c.curves(f, "32 goroutines", "-µs", dashed, goroutines)
	return c
}

var (
	solid  []vg.Length
	dashed = []vg.Length{vg.Points(4), vg.Points(3)}
	// colours are the colours of the kinds: distinct also without red or green.
	colours = map[string]color.Color{
		"sqlite":   color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
		"postgres": color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
		"mysql":    color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
		"mariadb":  color.RGBA{R: 0xcc, G: 0x33, B: 0x77, A: 0xff},
	}
)

// chart is a plot with a logarithmic scale, and its legend on the right.
type chart struct {
	*plot.Plot
	legend plot.Legend
	err    error // the first
}

func newChart(title, x, y string) *chart {
	c := &chart{Plot: plot.New(), legend: plot.NewLegend()}
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = title, x, y
	c.Title.Padding = vg.Points(8)
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	c.legend.Top = true
	c.legend.YOffs = vg.Points(-30)
	c.legend.XOffs = vg.Points(-8)
	c.legend.Padding = vg.Points(4)
	c.legend.TextStyle.Font.Size = vg.Points(10)
	c.legend.ThumbnailWidth = vg.Points(24)
	c.Add(plotter.NewGrid())
	return c
}

// point is a figure of a benchmark: that of the metric with the prefix.
type point struct {
	x                 float64
	benchmark, prefix string
}

// curves draws one curve for each kind of database.
func (c *chart) curves(f figures.Figures, what, metric string, dashes []vg.Length, points []point) {
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
		line, err := plotter.NewLine(xys)
		if err != nil {
			c.err = err
			return
		}
		line.Color, line.Width, line.Dashes = colours[k.Name], vg.Points(1.5), dashes
		c.Add(line)
		c.legend.Add(k.Title+", "+what, line)
	}
}

// save does nothing if there is no curve.
func (c *chart) save(file string) error {
	if c.err != nil || c.Y.Min > c.Y.Max {
		return c.err
	}
	image := vgsvg.New(vg.Points(760), vg.Points(400))
	canvas := draw.New(image)
	c.Draw(draw.Crop(canvas, 0, -c.legend.Rectangle(canvas).Size().X-vg.Points(24), 0, 0))
	c.legend.Draw(canvas)
	var svg bytes.Buffer
	if _, err := image.WriteTo(&svg); err != nil {
		return err
	}
	// Few machines have this font, and most have one of the same width.
	const family = "font-family:Liberation Sans"
	return os.WriteFile(file, bytes.ReplaceAll(svg.Bytes(), []byte(family), []byte(family+",Arial,sans-serif")), 0o644)
}
