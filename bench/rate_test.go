package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/reaper"
)

const (
	rateGoroutines = 16 // of each client
	rateTurns      = 6  // of half a second each
)

// BenchmarkRate is how many names are locked and unlocked per second by some clients, which have a
// pool and 16 goroutines each: what a pair costs the server, and what VACUUM finds afterwards. Each
// goroutine uses 15 names again and again.
func BenchmarkRate(b *testing.B) {
	eachSize(b, "clients", []int{1, 4, 16}, nil, func(b *testing.B, k kind, n int) {
		benchmarkRate(b, k, n, func(g, i int) string { return fmt.Sprintf("name/%d/%d", g, i%15) })
	})
}

// BenchmarkFresh is the same with names that are used once. Their rows stay until a reaper purges
// them, which is measured too.
func BenchmarkFresh(b *testing.B) {
	eachSize(b, "clients", []int{4}, nil, func(b *testing.B, k kind, n int) {
		var used atomic.Int64
		m := benchmarkRate(b, k, n, func(int, int) string { return fmt.Sprintf("name/%d", used.Add(1)) })
		names, err := m.number(b.Context(), "SELECT count(*) FROM dblock_locks")
		require.NoError(b, err)
		b.ReportMetric(m.tableBytes(b, "dblock_locks")/float64(names), "bytes/name")
		start := time.Now()
		report, err := reaper.Sweep(b.Context(), fakedb.On[any](m.backend()), reaper.Retention(0))
		require.NoError(b, err)
		b.ReportMetric(float64(report.Purged)/time.Since(start).Seconds(), "purged/s")
	})
}

func benchmarkRate(b *testing.B, k kind, n int, name func(g, i int) string) meter {
	d := k.create(b)
	probe := d.mustOpen(b, 3, nil)
	probe.noAutovacuum(b)
	m := newMeter(b, probe)
	clients := make([]client, n)
	for i := range clients {
		clients[i] = d.mustOpen(b, 8, nil).mustClient(b)
	}
	var pairs atomic.Int64
	turns := func(turns int) {
		for range turns {
			together(b, n*rateGoroutines, func(ctx context.Context, g, i int) error {
				pairs.Add(1)
				return pair(ctx, clients[g%n], name(g, i))
			})
		}
	}
	turns(1) // connections opened, statements prepared
	m.vacuum(b, func(float64, string) {})
	pairs.Store(0)
	rows := m.rowsOfServer(b)
	cpu, log, seconds := m.during(b, func() { turns(rateTurns) })
	rows = m.rowsOfServer(b) - rows
	total := float64(pairs.Load())
	b.ReportMetric(total/seconds, "pairs/s")
	b.ReportMetric(log*seconds/total, "log-bytes")
	if m.knowsCPU() {
		b.ReportMetric(1e6*cpu*seconds/total, "cpu-µs")
	}
	if k.engine != migrate.SQLite {
		b.ReportMetric(float64(rows)/total, "rows")
	}
	m.vacuum(b, b.ReportMetric)
	return m
}
