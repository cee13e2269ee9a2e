package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// row is a peer with its figures.
type row struct {
	peer
	figures                   [][]float64     // of each workload
	crashed, crashedByDefault []time.Duration // with commonTTL, and with the system's own
}

// figures are those of one run.
type figures struct {
	versions []string
	load     string        // of the machine, before
	of       time.Duration // the time of a measurement
	rows     []row
}

// compared is the peer that others are compared with.
const compared = "dblock-postgres"

// print prints Markdown: the machine, the ratios, the crashes, and the figures themselves.
// docs/compared.md ends with the ratios.
func (f figures) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "One run of `bench/peers/run`, %v a figure, all servers and clients on one machine: %s/%s, "+
		"%d cores, a load of %s before.\n\n", f.of, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), f.load)
	for _, v := range f.versions {
		fmt.Fprintf(&b, "- %s\n", v)
	}
	measured := len(f.measured()) > 0
	if measured {
		f.ratios(&b)
	}
	f.crashes(&b)
	if measured {
		f.absolute(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// ratios has the first figure of each workload, as many times as good as that of dblock on
// PostgreSQL.
func (f figures) ratios(b *strings.Builder) {
	var base *row
	for i := range f.rows {
		if f.rows[i].name == compared {
			base = &f.rows[i]
		}
	}
	if base == nil {
		return
	}
	heads := []string{"times as fast as dblock on PostgreSQL", "durable"}
	for _, w := range workloads {
		head, _, _ := strings.Cut(w.heads[0], ":")
		heads = append(heads, head)
	}
	table(b, heads, f.measured(), func(r row) (cells []string) {
		cells = append(cells, r.title, r.durable)
		for i, w := range workloads {
			ratio := r.figures[i][0] / base.figures[i][0]
			if w.time {
				ratio = 1 / ratio
			}
			if w.locks && r.reference {
				ratio = 0
			}
			cells = append(cells, number(ratio))
		}
		return cells
	})
}

// measured are the rows that have figures of the workloads.
func (f figures) measured() (rows []row) {
	for _, r := range f.rows {
		if len(r.figures) > 0 {
			rows = append(rows, r)
		}
	}
	return rows
}

func (f figures) absolute(b *strings.Builder) {
	heads := []string{"figures"}
	for _, w := range workloads {
		heads = append(heads, w.heads...)
	}
	table(b, heads, f.measured(), func(r row) (cells []string) {
		cells = append(cells, r.title)
		for i := range workloads {
			for _, figure := range r.figures[i] {
				cells = append(cells, number(figure))
			}
		}
		return cells
	})
}

func (f figures) crashes(b *strings.Builder) {
	heads := []string{"SIGKILL of the holder to the next grant: min / median / max, s", "default TTL",
		"with the default TTL", fmt.Sprintf("with a TTL of %.0f s", commonTTL.Seconds())}
	var locks []row
	for _, r := range f.rows {
		if !r.reference {
			locks = append(locks, r)
		}
	}
	table(b, heads, locks, func(r row) []string {
		ttl := "none"
		switch {
		case r.session:
			ttl = "no TTL: the connection"
		case r.ttl > 0:
			ttl = fmt.Sprintf("%.0f s", r.ttl.Seconds())
		}
		cells := []string{r.title, ttl, spread(r.crashedByDefault), spread(r.crashed)}
		if r.session {
			cells[2], cells[3] = cells[3], ""
		}
		return cells
	})
}

func table(b *strings.Builder, heads []string, rows []row, cells func(row) []string) {
	fmt.Fprintf(b, "\n| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells(r), " | "))
	}
}

// number writes a figure with two or three digits that count; 0 is none.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 0.1:
		return fmt.Sprintf("%.2g", v)
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func spread(times []time.Duration) string {
	if len(times) == 0 {
		return ""
	}
	var parts []string
	for _, q := range []float64{0, 0.5, 1} {
		seconds, digits := quantile(times, q).Seconds(), 1
		if seconds < 1 {
			digits = 3
		}
		parts = append(parts, fmt.Sprintf("%.*f", digits, seconds))
	}
	return strings.Join(parts, " / ")
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
