package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dblock-go/dblock/bench/figures"
)

// The installation that is worked out on paper, and the server for it. Half of a server's cores is
// left for the application, for backups and for peaks.
const (
	paperServices   = 100
	paperProcesses  = 1000 // of each service
	paperClients    = paperServices * paperProcesses
	paperCores      = 32
	usableCores     = paperCores / 2
	mostConnections = 10_000 // of a server without a pooler
	measuredTTL     = 15 * time.Second
)

// paperRow is a figure that follows from the measured ones. It is empty where one of them is
// missing.
type paperRow struct {
	title string
	of    func(m measured) string
}

// measured are the measured figures of one kind of database.
type measured struct {
	figures.Figures
	kind string
}

// slope returns the slope of the line through a series.
func (m measured) slope(benchmark, metric string) (slope float64, known bool) {
	s := m.Steady(benchmark, m.kind, metric)
	return figures.Fit(s).Slope, len(s) > 1
}

// last returns the last figure of a series.
func (m measured) last(benchmark, metric string) (y float64, known bool) {
	s := m.Series(benchmark, m.kind, metric)
	if len(s) == 0 {
		return 0, false
	}
	return s[len(s)-1].Y, true
}

// onPaper returns the sections that are worked out: the first limit of the machine that was
// measured, what a large server carries, and a large installation.
func onPaper(f figures.Figures) string {
	var b strings.Builder
	b.WriteString(paperTable(f, "Where the first limit is", []paperRow{
		{"idle clients that keep one core of the server busy, TTL 15 s", busyClients(1)},
		{"pairs per second that keep one core of the server busy", busyPairs(1)},
		{"new names per day, each used once, that make the table grow by 1 GB", func(m measured) string {
			bytes, known := m.last("Fresh", "bytes/name")
			return inWords(1e9/bytes, known)
		}},
	}))
	large := fmt.Sprintf("What a database of %d cores carries, with half of them", paperCores)
	b.WriteString(paperTable(f, large, []paperRow{
		{"idle clients, TTL 15 s", busyClients(usableCores)},
		{"idle clients, TTL 1 min", busyClients(usableCores * 4)},
		{"or pairs per second", busyPairs(usableCores)},
	}))
	rows := []paperRow{}
	for _, ttl := range []time.Duration{measuredTTL, time.Minute} {
		less := float64(ttl / measuredTTL)
		rows = append(rows,
			paperRow{title(ttl, "statements per second"), func(m measured) string {
				slope, known := m.slope("Fleet", "stmt/s")
				return inWords(paperClients*slope/less, known)
			}},
			paperRow{title(ttl, "cores"), func(m measured) string {
				slope, known := m.slope("Fleet", "cpu-ms/s")
				return inWords(paperClients*slope/1000/less, known)
			}},
			paperRow{title(ttl, "log, MB per second"), func(m measured) string {
				slope, known := m.slope("Fleet", "log-kB/s")
				return inWords(paperClients*slope/1000/less, known)
			}},
			paperRow{title(ttl, fmt.Sprintf("databases of %d cores", paperCores)), func(m measured) string {
				slope, known := m.slope("Fleet", "cpu-ms/s")
				return inWords(math.Ceil(paperClients*slope/1000/less/usableCores), known)
			}})
	}
	rows = append(rows,
		paperRow{"connections, while all hold a lock and none waits", func(m measured) string {
			slope, known := m.slope("Connections", "holding-conns")
			return inWords(paperClients*slope, known)
		}},
		paperRow{fmt.Sprintf("databases of %s connections", short(mostConnections)), func(m measured) string {
			slope, known := m.slope("Connections", "holding-conns")
			return inWords(math.Ceil(paperClients*slope/mostConnections), known)
		}},
		paperRow{"their memory on the servers, GB", func(m measured) string {
			slope, known := m.slope("Connections", "holding-conns")
			kB, also := m.last("Connections", "kB/conn")
			return inWords(paperClients*slope*kB/1e6, known && also)
		}})
	b.WriteString(paperTable(f, fmt.Sprintf("%d services of %s processes", paperServices, short(paperProcesses)), rows))
	return b.String()
}

func title(ttl time.Duration, what string) string {
	if ttl < time.Minute {
		return fmt.Sprintf("TTL %d s: %s", int(ttl.Seconds()), what)
	}
	return fmt.Sprintf("TTL %d min: %s", int(ttl.Minutes()), what)
}

func busyClients(cores float64) func(measured) string {
	return func(m measured) string {
		slope, known := m.slope("Fleet", "cpu-ms/s")
		return inWords(1000*cores/slope, known)
	}
}

func busyPairs(cores float64) func(measured) string {
	return func(m measured) string {
		each, known := m.last("Rate", "cpu-µs")
		return inWords(1e6*cores/each, known)
	}
}

// paperTable returns a section with a row for each figure. SQLite, which has no server, is no part
// of it.
func paperTable(f figures.Figures, title string, rows []paperRow) string {
	var kinds []figures.Kind
	for _, k := range figures.Kinds {
		if _, known := (measured{f, k.Name}).slope("Fleet", "stmt/s"); known && k.Name != "sqlite" {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n", title)
	header(&b, kinds)
	for _, r := range rows {
		var cells []string
		for _, k := range kinds {
			cells = append(cells, r.of(measured{f, k.Name}))
		}
		line(&b, r.title, cells)
	}
	return b.String()
}

// inWords writes a figure with two digits, since it is worked out.
func inWords(v float64, known bool) string {
	if !known || math.IsInf(v, 0) || math.IsNaN(v) {
		return ""
	}
	if v <= 0 {
		return short(v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return short(math.Round(v/unit) * unit)
}
