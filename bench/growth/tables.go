package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/dblock-go/dblock/bench/chart"
	"github.com/dblock-go/dblock/bench/figures"
)

// tables returns all sections, as Markdown.
func tables(f figures.Figures) string {
	var b strings.Builder
	for _, k := range figures.Kinds {
		if server := f.Servers[k.Name]; server != "" {
			fmt.Fprintf(&b, "- %s %s\n", k.Title, server)
		}
	}
	for _, t := range topics {
		b.WriteString(t.table(f))
	}
	return b.String() + onPaper(f)
}

// table returns a section: the figures for each number of things, and the slopes of the lines
// through them.
func (t topic) table(f figures.Figures) string {
	var numbers []float64
	var measured []figures.Kind
	for _, k := range figures.Kinds {
		before := len(numbers)
		for _, r := range t.rows {
			for _, p := range f.Series(t.benchmark, k.Name, r.metric) {
				numbers = append(numbers, p.N)
			}
		}
		if len(numbers) > before {
			measured = append(measured, k)
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if len(numbers) == 0 {
		return ""
	}
	var shown []string
	for _, n := range numbers {
		shown = append(shown, short(n))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s: %s %s\n\n`Benchmark%s`\n\n", t.title, strings.Join(shown, ", "), t.things, t.benchmark)
	header(&b, measured)
	pictures := ""
	for _, r := range t.rows {
		var values, slopes []string
		for _, k := range measured {
			value, slope := "", ""
			if series := f.Series(t.benchmark, k.Name, r.metric); len(series) > 0 {
				value = cells(series, numbers)
				if steady := f.Steady(t.benchmark, k.Name, r.metric); len(steady) > 1 && r.slope != "" {
					slope = short(r.slopeOf(steady))
				}
			}
			values, slopes = append(values, value), append(slopes, slope)
		}
		if line(&b, r.title, values) && r.plot != "" {
			pictures += fmt.Sprintf("\n![%s: %s](pictures/%s)\n", t.title, r.title, r.plot)
		}
		line(&b, "&emsp;"+r.slope, slopes)
	}
	return b.String() + pictures
}

// line writes a line of a table, unless all its cells are empty.
func line(b *strings.Builder, title string, cells []string) bool {
	if strings.Join(cells, "") == "" {
		return false
	}
	fmt.Fprintf(b, "| %s | %s |\n", title, strings.Join(cells, " | "))
	return true
}

func header(b *strings.Builder, kinds []figures.Kind) {
	b.WriteString("| |")
	for _, k := range kinds {
		fmt.Fprintf(b, " %s |", k.Title)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(kinds)))
}

// cells returns the figures of a series, with a dash for each number that was not measured.
func cells(series []figures.Point, numbers []float64) string {
	var list []string
	for _, n := range numbers {
		cell := "–"
		for _, p := range series {
			if p.N == n {
				cell = short(p.Y)
			}
		}
		list = append(list, cell)
	}
	return strings.Join(list, " / ")
}

func (r row) slopeOf(series []figures.Point) float64 {
	slope := figures.Fit(series).Slope
	if r.times != 0 {
		slope *= r.times
	}
	return slope
}

// short writes a figure with three digits, or as a whole number with commas.
func short(v float64) string {
	if math.Abs(v) < 99.95 {
		digits := 2 - int(math.Floor(math.Log10(math.Max(math.Abs(v), 0.001))))
		text := fmt.Sprintf("%.*f", digits, v)
		if strings.Contains(text, ".") {
			text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
		}
		if text == "-0" {
			return "0"
		}
		return text
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plots returns a chart of each row that has one, by its file: the figures, and the line with the
// least squares.
func plots(f figures.Figures) map[string]*chart.Chart {
	charts := map[string]*chart.Chart{}
	for _, t := range topics {
		for _, r := range t.rows {
			if r.plot != "" {
				charts[r.plot] = t.chart(r, f)
			}
		}
	}
	return charts
}

func (t topic) chart(r row, f figures.Figures) *chart.Chart {
	c := chart.New(t.title, t.things, r.title)
	for _, k := range figures.Kinds {
		series := f.Series(t.benchmark, k.Name, r.metric)
		if len(series) == 0 {
			continue
		}
		var measured, fitted plotter.XYs
		for _, p := range series {
			measured = append(measured, plotter.XY{X: p.N, Y: p.Y})
		}
		steady := f.Steady(t.benchmark, k.Name, r.metric)
		line := figures.Fit(steady)
		for _, p := range steady {
			fitted = append(fitted, plotter.XY{X: p.N, Y: line.Of(p.N)})
		}
		c.Points(k, measured)
		c.Line(k, fmt.Sprintf("%s %s", short(r.slopeOf(steady)), r.slope), fitted, nil)
	}
	c.X.Min, c.Y.Min = 0, 0
	return c
}
