// Package figures reads the output of the benchmarks.
package figures

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Kinds are the kinds of databases, in the order in which they are shown.
var Kinds = []Kind{
	{"sqlite", "SQLite"}, {"postgres", "PostgreSQL"}, {"mysql", "MySQL"}, {"mariadb", "MariaDB"},
}

// Kind is a kind of database.
type Kind struct{ Name, Title string }

// Figures are the output of one run of the benchmarks.
type Figures struct {
	// Servers are the versions, by the names of the kinds that were measured.
	Servers map[string]string
	metrics map[string]float64 // by "benchmark/kind unit"
}

// Metric returns a figure of a benchmark on a kind of database. It returns false if the benchmark
// did not print it.
func (f Figures) Metric(benchmark, kind, metric string) (float64, bool) {
	v, ok := f.metrics[benchmark+"/"+kind+" "+metric]
	return v, ok
}

// Read collects the metrics and the versions. If a benchmark ran twice, the last run counts.
func Read(in io.Reader) (Figures, error) {
	f := Figures{Servers: map[string]string{}, metrics: map[string]float64{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 2 && fields[0] == "server":
			f.Servers[fields[1]] = strings.Join(fields[2:], " ")
		case len(fields) > 3 && strings.HasPrefix(fields[0], "Benchmark"):
			name := strings.TrimPrefix(fields[0], "Benchmark")
			if dash := strings.LastIndexByte(name, '-'); dash > 0 {
				name = name[:dash] // GOMAXPROCS
			}
			for i := 2; i+1 < len(fields); i += 2 {
				v, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return Figures{}, fmt.Errorf("%q: %w", lines.Text(), err)
				}
				f.metrics[name+" "+fields[i+1]] = v
			}
		}
	}
	return f, lines.Err()
}
