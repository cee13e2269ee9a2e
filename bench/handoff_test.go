package bench

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

const (
	processes = 8
	settle    = 200 * time.Millisecond // until everybody is in the queue
	round     = 1500 * time.Millisecond
	work      = 5 * time.Millisecond
	maxPause  = 20 * time.Millisecond
)

// grant is a turn of one process, by the clock that all processes of the machine share.
type grant struct {
	process           int
	token             int64
	granted, unlocked time.Duration // when Lock returned, when Unlock was called
}

// BenchmarkHandoff is one name wanted by 8 processes, which are greedy (lock again at once) or
// polite (work for 5 ms, then pause for up to 20 ms), against one goroutine that commits a single
// row again and again, in turns. A hand-off is the time from the call of Unlock in one process to
// the return of Lock in the next.
func BenchmarkHandoff(b *testing.B) {
	for _, manner := range []string{"greedy", "polite"} {
		b.Run(manner, func(b *testing.B) {
			each(b, func(b *testing.B, k kind) { benchmarkHandoff(b, k, manner) })
		})
	}
}

func benchmarkHandoff(b *testing.B, k kind, manner string) {
	d := k.create(b)
	a := d.mustOpen(b, 2, nil)
	children := make([]*child, processes)
	for i := range children {
		children[i] = d.start(b, "handoff", "the one name")
	}
	var commits, seconds float64
	var times []time.Duration
	counts := make([]float64, processes)
	turns := 0
	for b.Loop() {
		rate, err := during(b.Context(), turn, func(int) error { return a.commit(b.Context(), 1) })
		if err != nil {
			b.Fatal(err)
		}
		commits += rate
		start := session.Boottime()
		grants := contend(b, children, manner, start+settle+round)
		var last grant
		for _, g := range grants {
			if g.granted < last.unlocked {
				b.Fatalf("two holders: %+v before the end of %+v", g, last)
			}
			if g.granted >= start+settle && g.granted < start+settle+round {
				counts[g.process]++
				if last.token != 0 && last.process != g.process {
					times = append(times, g.granted-last.unlocked)
				}
			}
			last = g
		}
		seconds += round.Seconds()
		turns++
	}
	total, squares := 0.0, 0.0
	for _, n := range counts {
		total += n
		squares += n * n
	}
	b.ReportMetric(0, "ns/op")
	if manner == "greedy" { // else it is the work that takes the time
		b.ReportMetric(total/seconds/(commits/float64(turns)), "ratio")
		b.ReportMetric(commits/float64(turns), "reference/s")
	}
	b.ReportMetric(total/seconds, "grants/s")
	b.ReportMetric(micros(quantile(times, 0.5)), "p50-µs")
	b.ReportMetric(micros(quantile(times, 0.99)), "p99-µs")
	b.ReportMetric(total*total/(processes*squares), "jain")
}

// contend lets all processes contend until a time, and returns the grants in the order of their
// tokens.
func contend(b *testing.B, children []*child, manner string, until time.Duration) (grants []grant) {
	for _, c := range children {
		if _, err := fmt.Fprintln(c.in, manner, int64(until)); err != nil {
			b.Fatal(err)
		}
	}
	for i, c := range children {
		for {
			if !c.out.Scan() {
				b.Fatalf("child %d ended: %v", i, c.out.Err())
			}
			if c.out.Text() == "done" {
				break
			}
			g := grant{process: i}
			if _, err := fmt.Sscan(c.out.Text(), &g.token, &g.granted, &g.unlocked); err != nil {
				b.Fatalf("child %d said %q: %v", i, c.out.Text(), err)
			}
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return int(a.token - b.token) })
	return grants
}

// handoffChild contends for the name whenever it is told to.
func handoffChild(ctx context.Context, d database) error {
	a, err := d.open(ctx, 4, nil)
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
		var until time.Duration
		if _, err := fmt.Sscan(in.Text(), &manner, (*int64)(&until)); err != nil {
			return err
		}
		var grants []grant
		for session.Boottime() < until {
			l, err := c.lock(ctx, name)
			if err != nil {
				return err
			}
			g := grant{token: l.Token(), granted: session.Boottime()}
			if manner == "polite" {
				time.Sleep(work)
			}
			g.unlocked = session.Boottime()
			if err := l.Unlock(ctx); err != nil {
				return err
			}
			grants = append(grants, g)
			if manner == "polite" {
				time.Sleep(rand.N(maxPause))
			}
		}
		for _, g := range grants {
			fmt.Fprintln(out, g.token, int64(g.granted), int64(g.unlocked))
		}
		fmt.Fprintln(out, "done")
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}
