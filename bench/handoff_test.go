package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/require"
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
	process, name     int
	token             int64
	granted, unlocked time.Duration // when Lock returned, when Unlock was called
}

// BenchmarkHandoff is one name wanted by 8 processes, which are greedy (lock again at once) or
// polite (work for 5 ms, then pause for up to 20 ms), against one goroutine that commits a single
// row again and again, in turns. A hand-off is the time from the call of Unlock in one process to
// the return of Lock in the next. On PostgreSQL the greedy ones also take turns with naive locking:
// each process has one connection, on which it locks the same row with SELECT … FOR UPDATE and
// commits.
func BenchmarkHandoff(b *testing.B) {
	for _, manner := range []string{"greedy", "polite"} {
		b.Run(manner, func(b *testing.B) { each(b, func(b *testing.B, k kind) { benchmarkHandoff(b, k, manner) }) })
	}
}

func benchmarkHandoff(b *testing.B, k kind, manner string) {
	d := k.create(b)
	a := d.mustOpen(b, 2, nil)
	children := d.contenders(b)
	var commits float64
	var ours, naive tally
	turns := 0
	for b.Loop() {
		rate, err := during(b.Context(), turn, func(int) error { return a.commit(b.Context(), 1) })
		require.NoError(b, err)
		commits += rate
		if manner == "greedy" && a.pgx != nil {
			naive.add(b, children, "naive", settle, round)
		}
		ours.add(b, children, manner, settle, round)
		turns++
	}
	b.ReportMetric(0, "ns/op")
	if manner == "greedy" { // else it is the work that takes the time
		b.ReportMetric(ours.rate()/(commits/float64(turns)), "ratio")
		b.ReportMetric(commits/float64(turns), "reference/s")
	}
	if naive.seconds > 0 {
		b.ReportMetric(ours.rate()/naive.rate(), "naive-ratio")
		// a naive process may lock again before the others
		b.ReportMetric(float64(len(ours.times))/float64(len(naive.times)), "naive-handoff-ratio")
		b.ReportMetric(float64(quantile(ours.times, 0.99))/float64(quantile(naive.times, 0.99)), "naive-p99-ratio")
		b.ReportMetric(naive.rate(), "naive/s")
		b.ReportMetric(micros(quantile(naive.times, 0.5)), "naive-p50-µs")
		b.ReportMetric(micros(quantile(naive.times, 0.99)), "naive-p99-µs")
	}
	b.ReportMetric(ours.rate(), "grants/s")
	b.ReportMetric(micros(quantile(ours.times, 0.5)), "p50-µs")
	b.ReportMetric(micros(quantile(ours.times, 0.99)), "p99-µs")
	b.ReportMetric(ours.jain(), "jain")
}

// BenchmarkNames is 64 names, each wanted by one goroutine of each of 4 processes, against as many
// goroutines that commit a row each, over as many connections.
func BenchmarkNames(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		d := k.create(b)
		a := d.mustOpen(b, poolSize, nil)
		children := d.contenders(b)[:4]
		var ours tally
		commits, turns := 0.0, 0.0
		for ; b.Loop(); turns++ {
			commits += together(b, 64, func(ctx context.Context, g, _ int) error { return a.commit(ctx, g) })
			ours.add(b, children, "many", 4*time.Second, 3*round) // at first everyone connects
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(ours.rate()/(commits/turns), "ratio")
		b.ReportMetric(ours.rate(), "grants/s")
		b.ReportMetric(commits/turns, "reference/s")
		b.ReportMetric(micros(quantile(ours.times, 0.5)), "p50-µs")
		b.ReportMetric(micros(quantile(ours.times, 0.99)), "p99-µs")
	})
}

func (d database) contenders(b *testing.B) []*child {
	children := make([]*child, processes)
	for i := range children {
		children[i] = d.start(b, "handoff", "the one name")
	}
	return children
}

// tally is what came of several rounds.
type tally struct {
	counts  [processes]float64
	times   []time.Duration // of the hand-offs from one process to another
	seconds float64
}

// add has all processes contend, and counts after they have settled.
func (t *tally) add(b *testing.B, children []*child, manner string, settle, round time.Duration) {
	from := session.Boottime() + settle
	var last grant
	for _, g := range contend(b, children, manner, 1, from+round) {
		if g.name != last.name {
			last = grant{}
		}
		if g.granted < last.unlocked {
			b.Fatalf("two holders: %+v before the end of %+v", g, last)
		}
		if g.granted >= from && g.granted < from+round {
			t.counts[g.process]++
			if last.token != 0 && last.process != g.process {
				t.times = append(t.times, g.granted-last.unlocked)
			}
		}
		last = g
	}
	t.seconds += round.Seconds()
}

func (t *tally) total() (n float64) {
	for _, count := range t.counts {
		n += count
	}
	return n
}

func (t *tally) rate() float64 { return t.total() / t.seconds }

func (t *tally) jain() float64 {
	squares := 0.0
	for _, n := range t.counts {
		squares += n * n
	}
	return t.total() * t.total() / (processes * squares)
}

// contend lets all processes contend until a time, and returns the grants of each name in the order
// of their tokens.
func contend(b *testing.B, children []*child, manner string, each int, until time.Duration) (grants []grant) {
	for _, c := range children {
		require.NoError(b, require.ErrOf(fmt.Fprintln(c.in, manner, each, int64(until))))
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
			if _, err := fmt.Sscan(c.out.Text(), &g.name, &g.token, &g.granted, &g.unlocked); err != nil {
				b.Fatalf("child %d said %q: %v", i, c.out.Text(), err)
			}
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.token, b.token))
	})
	return grants
}

// handoffChild contends for the name whenever it is told to.
func handoffChild(ctx context.Context, d database) error {
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
		var each int
		var until time.Duration
		if _, err := fmt.Sscan(in.Text(), &manner, &each, (*int64)(&until)); err != nil {
			return err
		}
		var grants []grant
		switch manner {
		case "naive":
			grants, err = naively(ctx, a, until)
		case "fresh":
			grants, err = concurrently(each, func(int) ([]grant, error) { return freshly(ctx, d, name, until) })
		case "many":
			grants, err = onMany(ctx, d, name, until)
		default:
			grants, err = concurrently(each, func(int) ([]grant, error) {
				return contending(ctx, c, name, manner, until)
			})
		}
		if err != nil {
			return err
		}
		for _, g := range grants {
			fmt.Fprintln(out, g.name, g.token, int64(g.granted), int64(g.unlocked))
		}
		fmt.Fprintln(out, "done")
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

// contending is a client that locks a name again and again.
func contending(ctx context.Context, c client, name, manner string, until time.Duration) (grants []grant, err error) {
	for session.Boottime() < until {
		l, err := c.lock(ctx, name)
		if err != nil {
			return nil, err
		}
		g := grant{token: l.Token(), granted: session.Boottime()}
		if manner == "polite" {
			time.Sleep(work)
		}
		g.unlocked = session.Boottime()
		if err := l.Unlock(ctx); err != nil {
			return nil, err
		}
		grants = append(grants, g)
		if manner == "polite" {
			time.Sleep(rand.N(maxPause))
		}
	}
	return grants, nil
}

// freshly has a new client contend, with a pool of its own.
func freshly(ctx context.Context, d database, name string, until time.Duration) (grants []grant, err error) {
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
	return contending(ctx, c, name, "greedy", until)
}

// onMany has a goroutine contend for each of many names, through one client.
func onMany(ctx context.Context, d database, name string, until time.Duration) (grants []grant, err error) {
	a, err := d.open(ctx, poolSize, nil)
	if err != nil {
		return nil, err
	}
	defer a.close()
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	return concurrently(64, func(i int) ([]grant, error) {
		its, err := contending(ctx, c, fmt.Sprint(name, i), "greedy", until)
		for n := range its {
			its[n].name = i
		}
		return its, err
	})
}

func concurrently(n int, f func(i int) ([]grant, error)) ([]grant, error) {
	var wg sync.WaitGroup
	grants, errs := make([][]grant, n), make([]error, n)
	for i := range n {
		wg.Go(func() { grants[i], errs[i] = f(i) })
	}
	wg.Wait()
	return slices.Concat(grants...), errors.Join(errs...)
}

// naively locks a row in a transaction, on one connection. The time of a grant stands for its
// token.
func naively(ctx context.Context, a *app, until time.Duration) (grants []grant, err error) {
	conn, err := a.pgx.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	for session.Boottime() < until {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			return nil, err
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT n FROM bench_rows WHERE id = 1 FOR UPDATE").Scan(&n); err != nil {
			return nil, err
		}
		now := session.Boottime()
		grants = append(grants, grant{token: int64(now), granted: now, unlocked: session.Boottime()})
		if err := tx.Commit(ctx); err != nil {
			return nil, err
		}
	}
	return grants, nil
}
