package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const beatingSessions = 1000

// BenchmarkBeats is heartbeats one after the other on each of some reserved connections: how many
// the server can do at most.
func BenchmarkBeats(b *testing.B) {
	eachSize(b, "connections", []int{1, 4, 16}, nil, func(b *testing.B, k kind, n int) {
		d := k.create(b)
		a, probe := d.mustOpen(b, 2*poolSize, nil), d.mustOpen(b, 1, nil)
		m, backend := newMeter(b, probe), a.backend()
		b.Cleanup(backend.Attend("bench", time.Minute))
		for i := range beatingSessions {
			require.NoError(b, backend.OpenSession(b.Context(), driver.Session{ID: beatingSession(i), TTL: time.Hour}))
		}
		ups := make([]driver.Upkeep, n)
		for i := range ups {
			var err error
			ups[i], err = backend.Upkeep(b.Context(), "bench")
			require.NoError(b, err)
			b.Cleanup(func() { assert.NoError(b, ups[i].Close()) })
		}
		var next atomic.Int64
		beat := func(ctx context.Context, g, _ int) error {
			i := int(next.Add(1)) % beatingSessions
			alive, err := ups[g].Heartbeat(ctx, beatingSession(i), time.Hour)
			if err == nil && !alive {
				err = fmt.Errorf("session %d is dead", i)
			}
			return err
		}
		together(b, n, beat) // statements prepared
		next.Store(0)
		cpu, log, seconds := m.during(b, func() {
			for range 4 {
				together(b, n, beat)
			}
		})
		beats := float64(next.Load())
		b.ReportMetric(beats/seconds, "beats/s")
		b.ReportMetric(log*seconds/beats, "log-bytes")
		if m.knowsCPU() {
			b.ReportMetric(1e6*cpu*seconds/beats, "cpu-µs")
		}
	})
}

func beatingSession(i int) string { return fmt.Sprintf("bench%d", i) }
