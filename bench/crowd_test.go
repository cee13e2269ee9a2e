package bench

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// first is for how long new clients are measured.
const first = 4 * time.Second

// BenchmarkCrowd is one name wanted by some goroutines of each of some processes, or by clients
// that have just been made and have no connections, against 8 processes of one goroutine each that
// have contended before, in turns. All are greedy.
func BenchmarkCrowd(b *testing.B) {
	for _, c := range []crowd{
		{"goroutines=32,processes=1", 1, "greedy", 32, settle, round},
		{"goroutines=8,processes=4", 4, "greedy", 8, settle, round},
		{"fresh=32", processes, "fresh", 32 / processes, 0, first},
	} {
		b.Run(c.name, func(b *testing.B) { each(b, c.run) })
	}
}

// crowd is a number of goroutines that want the name. They are measured for a time, after another
// that they have to settle.
type crowd struct {
	name            string
	processes       int
	manner          string // "greedy": goroutines of one client; "fresh": new clients of one goroutine each
	each            int    // in each process
	settle, measure time.Duration
}

func (c crowd) run(b *testing.B, k kind) {
	d := k.create(b)
	children := d.contenders(b)
	reference := crowd{"", processes, "greedy", 1, settle, round}
	var ours, theirs handoffs
	for b.Loop() {
		theirs.add(reference.contend(b, children))
		ours.add(c.contend(b, children))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.rate()/theirs.rate(), "ratio")
	for prefix, h := range map[string]handoffs{"": ours, "reference-": theirs} {
		b.ReportMetric(h.rate(), prefix+"grants/s")
		for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999} {
			b.ReportMetric(micros(quantile(h.times, q)), prefix+name+"-µs")
		}
	}
}

// handoffs are the grants of some seconds, and the times from each Unlock to the next grant.
type handoffs struct {
	grants  int
	seconds float64
	times   []time.Duration
}

func (h *handoffs) add(more handoffs) {
	h.grants += more.grants
	h.seconds += more.seconds
	h.times = append(h.times, more.times...)
}

func (h handoffs) rate() float64 { return float64(h.grants) / h.seconds }

// contend lets the crowd contend for its time. Two holders at once end the benchmark.
func (c crowd) contend(b *testing.B, children []*child) handoffs {
	b.Helper()
	h := handoffs{seconds: c.measure.Seconds()}
	start := session.Boottime()
	until := start + c.settle + c.measure
	var last grant
	for _, g := range contend(b, children[:c.processes], c.manner, c.each, until) {
		if g.granted < last.unlocked {
			b.Fatalf("two holders: %+v before the end of %+v", g, last)
		}
		if g.granted >= start+c.settle && g.granted < until {
			h.grants++
			if last.token != 0 {
				h.times = append(h.times, g.granted-last.unlocked)
			}
		}
		last = g
	}
	return h
}
