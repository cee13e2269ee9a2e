// Package chart draws figures of several kinds of databases as SVG.
package chart

import (
	"bytes"
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

// colours are the colours of the kinds: distinct also without red or green.
var colours = map[string]color.Color{
	"sqlite":   color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	"postgres": color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	"mysql":    color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	"mariadb":  color.RGBA{R: 0xcc, G: 0x33, B: 0x77, A: 0xff},
}

// Chart is a plot with its legend on the right.
type Chart struct {
	*plot.Plot
	legend plot.Legend
	err    error // the first
}

// New returns an empty chart.
func New(title, x, y string) *Chart {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	c := &Chart{Plot: plot.New(), legend: plot.NewLegend()}
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = title, x, y
	c.Title.Padding = vg.Points(8)
	c.legend.Top, c.legend.Left = true, true // a wider font than the one measured grows into the margin
	c.legend.YOffs = vg.Points(-30)
	c.legend.Padding = vg.Points(4)
	c.legend.TextStyle.Font.Size = vg.Points(10)
	c.legend.ThumbnailWidth = vg.Points(24)
	c.Add(plotter.NewGrid())
	return c
}

// Line adds a line of one kind of database through some points. The legend names the kind, and what
// the line is of if that is not empty.
func (c *Chart) Line(k figures.Kind, what string, points plotter.XYs, dashes []vg.Length) {
	line, err := plotter.NewLine(points)
	if err != nil {
		c.err = err
		return
	}
	line.Color, line.Width, line.Dashes = colours[k.Name], vg.Points(1.5), dashes
	c.Add(line)
	if what != "" {
		what = ", " + what
	}
	c.legend.Add(k.Title+what, line)
}

// Points adds points of one kind of database.
func (c *Chart) Points(k figures.Kind, points plotter.XYs) {
	scatter, err := plotter.NewScatter(points)
	if err != nil {
		c.err = err
		return
	}
	scatter.Color, scatter.Radius, scatter.Shape = colours[k.Name], vg.Points(3), draw.CircleGlyph{}
	c.Add(scatter)
}

// Save writes the chart to a file. It does nothing if the chart has no points.
func (c *Chart) Save(file string) error {
	if c.err != nil || c.Y.Min > c.Y.Max {
		return c.err
	}
	image := vgsvg.New(vg.Points(760), vg.Points(400))
	canvas := draw.New(image)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path()) // also below the legend, whose text is black: the page may be dark
	aside := c.legend.Rectangle(canvas).Size().X + vg.Points(24)
	c.Draw(draw.Crop(canvas, 0, -aside, 0, 0))
	c.legend.Draw(draw.Crop(canvas, canvas.Size().X-aside, 0, 0, 0))
	var svg bytes.Buffer
	if _, err := image.WriteTo(&svg); err != nil {
		return err
	}
	// Few machines have this font, and most have one of the same width.
	const family = "font-family:Liberation Sans"
	return os.WriteFile(file, bytes.ReplaceAll(svg.Bytes(), []byte(family), []byte(family+",Arial,sans-serif")), 0o644)
}
