package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
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
		{"goroutines=32,processes=1", 1, "goroutines", 32, settle, round},
		{"goroutines=8,processes=4", 4, "goroutines", 8, settle, round},
		{"fresh=32", processes, "clients", 32 / processes, 0, first},
	} {
		b.Run(c.name, func(b *testing.B) { each(b, c.run) })
	}
}

// crowd is who wants the name, and for how long that is measured after how long.
type crowd struct {
	name            string
	processes       int
	manner          string // "goroutines" of one client, or new "clients" of one goroutine each
	each            int    // in each process
	settle, measure time.Duration
}

func (c crowd) run(b *testing.B, k kind) {
	d := k.create(b)
	children := make([]*child, processes)
	for i := range children {
		children[i] = d.start(b, "crowd", "the one name")
	}
	reference := crowd{"", processes, "goroutines", 1, settle, round}
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
	for _, g := range contend(b, children[:c.processes], fmt.Sprint(c.manner, " ", c.each), until) {
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

// crowdChild contends for the name whenever it is told to.
func crowdChild(ctx context.Context, d database) error {
	a, err := d.open(ctx, 8, nil)
	if err != nil {
		return err
	}
	defer a.close()
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	name := os.Getenv("DBLOCK_BENCH_CHILD_NAME")
	if err := pair(ctx, c, name); err != nil {
		return err
	}
	fmt.Println("ready")
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		var manner string
		var n int
		var until time.Duration
		if _, err := fmt.Sscan(in.Text(), &manner, &n, (*int64)(&until)); err != nil {
			return err
		}
		grants := make([][]grant, n)
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if manner == "clients" {
					grants[i], errs[i] = d.freshGreedy(ctx, name, until)
				} else {
					grants[i], errs[i] = greedy(ctx, c, name, until)
				}
			})
		}
		all.Wait()
		for i := range n {
			if errs[i] != nil {
				return errs[i]
			}
			for _, g := range grants[i] {
				fmt.Fprintln(out, g.name, g.token, int64(g.granted), int64(g.unlocked))
			}
		}
		fmt.Fprintln(out, "done")
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

// freshGreedy is greedy with a new client and a new pool.
func (d database) freshGreedy(ctx context.Context, name string, until time.Duration) ([]grant, error) {
	a, err := d.open(ctx, 8, nil)
	if err != nil {
		return nil, err
	}
	defer a.close()
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	return greedy(ctx, c, name, until)
}

// greedy locks and unlocks until a time.
func greedy(ctx context.Context, c client, name string, until time.Duration) (grants []grant, err error) {
	for session.Boottime() < until {
		l, err := c.lock(ctx, name)
		if err != nil {
			return nil, err
		}
		g := grant{token: l.Token(), granted: session.Boottime()}
		g.unlocked = session.Boottime()
		if err := l.Unlock(ctx); err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}
