package bench

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

// queueWindow is how long the waiters are measured while nothing moves.
const queueWindow = 5 * time.Second

// BenchmarkQueue is up to 100,000 waiters of one name, with a place in the queue each: how fast
// they join, the size of their rows, what they cost while they wait, and how long a hand-off among
// them takes.
func BenchmarkQueue(b *testing.B) {
	eachSize(b, "waiters", []int{100, 1000, 10_000}, []int{100_000}, func(b *testing.B, k kind, n int) {
		count := newCounter()
		p := newPlace(b, k, size{waiters: n}, count)
		m := newMeter(b, p.mustOpen(b, 1, nil))
		b.ReportMetric(float64(n)/p.joining.Seconds(), "joins/s")
		b.ReportMetric(m.tableBytes(b, "dblock_waiters")/1e6, "table-MB")
		count.reset()
		cpu, _, seconds := m.during(b, func() { time.Sleep(queueWindow) })
		all, _, words := count.reset()
		b.Logf("%d waiters: %s", n, words)
		if k.engine != migrate.SQLite {
			b.ReportMetric(float64(all)/seconds, "stmt/s")
		}
		if m.knowsCPU() {
			b.ReportMetric(1000*cpu, "cpu-ms/s")
		}
		p.handOn(2 * scaleTurn)
		_, handoff := p.medians()
		b.ReportMetric(handoff, "handoff-µs")
		p.leave()
		queued(b, p.app, 0) // Close would not wait for as many
	})
}
