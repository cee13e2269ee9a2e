package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	rivals  = 64 // goroutines that want the name
	permits = 8  // of the name
)

// BenchmarkMutex is 64 goroutines of one client that want one name, against the ideal: work after
// work, with nothing between.
func BenchmarkMutex(b *testing.B) {
	eachWork(b, []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond}, func(b *testing.B, w time.Duration) {
		each(b, func(b *testing.B, k kind) {
			c, mutex := newContest(b, k, 1, w), subject{name: "mutex", places: 1}
			var ours score
			for b.Loop() {
				ours.add(c.turn(b, mutex))
			}
			c.report(b, mutex, ours)
		})
	})
}

// BenchmarkPermits is 64 goroutines of one client, or of eight, that each want one of 8 permits
// of a name, against the ideal, which is eight works at a time, and against the name as a mutex, in
// turns.
func BenchmarkPermits(b *testing.B) {
	benchmarkShares(b, subject{"permits", permits, []dblock.LockOption{dblock.Permits(1, permits)}})
}

// BenchmarkReaders is the same with readers: all 64 may work at a time.
func BenchmarkReaders(b *testing.B) {
	benchmarkShares(b, subject{"readers", rivals, []dblock.LockOption{dblock.Shared()}})
}

func benchmarkShares(b *testing.B, shares subject) {
	works := []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}
	eachWork(b, works, func(b *testing.B, w time.Duration) {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
				each(b, func(b *testing.B, k kind) {
					c := newContest(b, k, clients, w)
					var ours, theirs score
					for b.Loop() {
						theirs.add(c.turn(b, subject{name: "mutex", places: 1}))
						ours.add(c.turn(b, shares))
					}
					c.report(b, shares, ours)
					b.ReportMetric(ours.rate()/theirs.rate(), "ratio")
					b.ReportMetric(theirs.rate(), "reference/s")
				})
			})
		}
	})
}

// eachWork runs a benchmark with several times of work under the lock.
func eachWork(b *testing.B, works []time.Duration, f func(b *testing.B, w time.Duration)) {
	for _, w := range works {
		b.Run(fmt.Sprintf("work=%v", w), func(b *testing.B) { f(b, w) })
	}
}

// contest is goroutines of some clients that want one name again and again, and work for a time
// under it.
type contest struct {
	clients []client
	work    time.Duration

	mu     sync.Mutex // protects what follows
	score  score
	inside int // goroutines that have the name
}

// subject is a name, and how it is wanted.
type subject struct {
	name    string
	places  int // how many may have it at once
	options []dblock.LockOption
}

// score is what happened in some seconds.
type score struct {
	seconds, grants         float64
	worked                  float64 // seconds of work, as long as it took
	calls, joins, handovers float64 // of the engine
}

func (s *score) add(more score) {
	s.seconds += more.seconds
	s.grants += more.grants
	s.worked += more.worked
	s.calls += more.calls
	s.joins += more.joins
	s.handovers += more.handovers
}

func (s score) rate() float64 { return s.grants / s.seconds }

func newContest(b *testing.B, k kind, clients int, w time.Duration) *contest {
	b.Helper()
	d := k.create(b)
	c := &contest{work: w}
	for range clients {
		a := d.mustOpen(b, 8, nil)
		a.hook = c.hook
		c.clients = append(c.clients, a.mustClient(b))
	}
	return c
}

// hook counts the calls that change names. A hand-over counts once, however many it grants to.
func (c *contest) hook(ctx context.Context, call *fakedb.Call) error {
	err := call.Do(ctx)
	if len(call.Ops) == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.score.calls++
	for _, op := range call.Ops {
		if _, joins := op.(protocol.Join); joins {
			c.score.joins++
		}
	}
	for _, r := range call.Results {
		if len(r.Next) > 0 {
			c.score.handovers++
		}
	}
	return err
}

// turn lets the goroutines contend. It measures them once there were as many grants as goroutines,
// or those of two seconds of work. When it returns, all of them have left the name.
func (c *contest) turn(b *testing.B, s subject) score {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	errs := make([]error, rivals)
	var contending sync.WaitGroup
	c.reset()
	for g := range rivals {
		contending.Go(func() {
			for ctx.Err() == nil {
				if errs[g] = c.hold(ctx, c.clients[g%len(c.clients)], s); errs[g] != nil {
					stop()
				}
			}
		})
	}
	settled := rivals
	if c.work > 0 {
		settled = min(rivals, int(2*time.Second/c.work))
	}
	for c.grants() < settled && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	c.reset()
	start := time.Now()
	time.Sleep(max(round, 20*c.work))
	measured := c.reset()
	measured.seconds = time.Since(start).Seconds()
	stop()
	contending.Wait()
	require.NoError(b, errors.Join(errs...))
	require.NoError(b, pair(b.Context(), c.clients[0], s.name)) // behind what the cancelled requests left
	return measured
}

// hold gets the name, works, and gives it back. That more have it than may is an error. That the
// turn ends before the grant is none.
func (c *contest) hold(ctx context.Context, cl client, s subject) error {
	l, err := cl.lock(ctx, s.name, s.options...)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if n := c.enter(); n > s.places {
		return fmt.Errorf("%d have %q at once: at most %d may", n, s.name, s.places)
	}
	start := time.Now()
	time.Sleep(c.work)
	c.leave(time.Since(start))
	return l.Unlock(context.WithoutCancel(ctx))
}

// enter counts a grant, and returns how many have the name.
func (c *contest) enter() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.score.grants++
	c.inside++
	return c.inside
}

// leave counts the end of work that took so long.
func (c *contest) leave(worked time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.score.worked += worked.Seconds()
	c.inside--
}

func (c *contest) grants() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.score.grants)
}

// reset returns the score, and begins another.
func (c *contest) reset() score {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.score
	c.score = score{}
	return s
}

// report prints what the goroutines got, and what a run of 32 grants cost the engine.
func (c *contest) report(b *testing.B, s subject, got score) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(got.rate(), "grants/s")
	if c.work > 0 {
		b.ReportMetric(got.rate()*c.work.Seconds()/float64(s.places), "of-ideal")
		b.ReportMetric(got.worked/got.seconds/float64(s.places), "busy")
	}
	b.ReportMetric(32*got.calls/got.grants, "calls/32-grants")
	b.ReportMetric(32*got.joins/got.grants, "joins/32-grants")
	b.ReportMetric(32*got.handovers/got.grants, "handovers/32-grants")
}
