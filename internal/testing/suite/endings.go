package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
)

var endings = inPlaces(own{
	{"Unlock with a context that has ended releases all the same", unlockEnded},
	{"Unlock by a stale handle never releases the lock of the new holder", unlockStale},
	{"Close hands held locks to their waiters at once, and its own waiters get ErrClosed", closing},
	{"Close twice, or at once from many goroutines, is the same as once", closeTwice},
	{"a closed client takes no lock", closed},
	{"Close while others lock and unlock leaves nothing behind", closeUnderLoad},
}, moving{
	{"whoever asks a context after a pause hears that it has ended, before any timer fires", askedAfterAPause},
}, flowing{
	{"Unlock twice says what it said the first time", unlockTwice},
})

// Broken by a context that only a timer ends: after a pause its Err is nil until the timer's
// goroutine has run.
func askedAfterAPause(t *testing.T, e *env) {
	end := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(end)
	const lease = 10 * time.Second
	for what, taken := range contextsUnder(t, lease, func(run func(f func(ctx context.Context) error)) context.Context {
		got := make(chan context.Context)
		running.Go(func() { run(func(ctx context.Context) error { got <- ctx; <-end; return nil }) })
		return <-got
	}) {
		by := longTTL
		if what == "a short lock" {
			by = lease
		}
		for how, hears := range waysToAsk {
			ctx := taken(e.client(t), what+"/"+how)
			before, cancel := context.WithCancel(ctx)
			defer cancel()
			if hears(ctx) {
				t.Errorf("%s ended before the pause: %v", what, context.Cause(ctx))
			}
			resume := e.pause(t, by)
			if !hears(ctx) || before.Err() == nil || !errors.Is(context.Cause(before), dblock.ErrLost) {
				t.Errorf("asked for %s after a pause, the context of %s is live: %v", how, what, context.Cause(ctx))
			}
			resume()
		}
	}
}

// waysToAsk are how code learns that a context has ended.
var waysToAsk = map[string]func(ctx context.Context) bool{
	"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
	"Cause": func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), dblock.ErrLost) },
	"Done": func(ctx context.Context) bool {
		select {
		case <-ctx.Done():
			return true
		default:
			return false
		}
	},
	"a context below it": func(ctx context.Context) bool {
		below, cancel := context.WithCancel(context.WithValue(ctx, belowKey{}, true))
		defer cancel()
		return below.Err() != nil && errors.Is(context.Cause(below), dblock.ErrLost)
	},
}

type belowKey struct{}

// contextsUnder are the contexts that end with a lock. under returns that of a function of the
// application's, which run calls.
func contextsUnder(
	t *testing.T, lease time.Duration, under func(run func(f func(ctx context.Context) error)) context.Context,
) map[string]func(c Client, name string) context.Context {
	return map[string]func(c Client, name string) context.Context{
		"a lock": func(c Client, name string) context.Context { return lock(t, c, name).Context() },
		"a short lock": func(c Client, name string) context.Context {
			return lock(t, c, name, dblock.Lease(lease)).Context()
		},
		"LockAll": func(c Client, name string) context.Context {
			all, err := c.LockAll(t.Context(), []string{name, name + "/2"})
			require.NoError(t, err)
			return all.Context()
		},
		"Do": func(c Client, name string) context.Context {
			return under(func(f func(ctx context.Context) error) {
				_ = c.Do(t.Context(), name, func(ctx context.Context, _ *dblock.Lock) error { return f(ctx) })
			})
		},
		"a job": func(c Client, name string) context.Context {
			return under(func(f func(ctx context.Context) error) {
				job := func(ctx context.Context, _ *dblock.Lock, _ time.Time) error { return f(ctx) }
				_, _ = c.OncePer(t.Context(), name, time.Hour, job)
			})
		},
		"a leader": func(c Client, name string) context.Context {
			return under(func(f func(ctx context.Context) error) {
				campaign, cancel := context.WithCancel(t.Context())
				_ = election.New(c.Client).Campaign(campaign, name, func(ctx context.Context, _ *election.Term) error {
					defer cancel()
					return f(ctx)
				})
			})
		},
	}
}

func unlockTwice(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "twice")
	unlock(t, first)
	next := lock(t, b, "twice")
	for range 3 {
		unlock(t, first)
	}
	live(t, next)
	refused(t, a, "twice")
	unlock(t, next)

	lost := lock(t, a, "lost")
	e.end(t, e.session(t, "lost"))
	ended(t, soon, lost, dblock.ErrLost)
	for range 3 {
		is(t, lost.Unlock(context.Background()), dblock.ErrLost)
	}

	// Many at once are one.
	l := lock(t, b, "at once")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { assert.NoError(t, l.Unlock(context.Background())) })
	}
	all.Wait()
	e.free(t, "at once")
}

func unlockEnded(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := a.Lock(ctx, "deferred")
	require.NoError(t, err)
	line := e.line(t, "deferred", 1, []Client{b}, background)
	cancel()
	require.NoError(t, l.Unlock(ctx))
	next := granted(t, soon, line[0])
	if err := next.Unlock(next.Context()); err != nil { // which ends in the middle of it
		t.Fatal(err)
	}
	e.free(t, "deferred")
	err = b.Do(t.Context(), "deferred", func(ctx context.Context, l *dblock.Lock) error { return l.Unlock(ctx) })
	require.NoError(t, err)
	e.free(t, "deferred")
}

func unlockStale(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t)
	// Taken away by an operator, and held by another goroutine of the same client when the first
	// unlocks.
	for _, next := range []Client{b, a} {
		first := lock(t, a, "stale")
		e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '' WHERE name = 'stale'")
		second := lock(t, next, "stale")
		is(t, first.Unlock(context.Background()), dblock.ErrLost)
		live(t, second)
		refused(t, c, "stale")
		assert.Equal(t, e.number(t, "SELECT token FROM dblock_locks WHERE name = 'stale'"), second.Token(),
			"the row has token")
		assert.Error(t, first.Context().Err(), "the context of the lock that was taken away has not ended")
		unlock(t, second)
		e.free(t, "stale")
	}
}

func closing(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	held, waited := lock(t, a, "held"), lock(t, b, "waited for")
	successor := e.line(t, "held", 1, []Client{b}, background)
	waiters := e.line(t, "waited for", 3, []Client{a}, background)
	require.NoError(t, a.Close(t.Context()))
	next := granted(t, soon, successor[0])
	ended(t, soon, held, dblock.ErrClosed)
	rising(t, held.Token(), next.Token())
	for _, w := range waiters {
		is(t, within(t, soon, "the waiter returns", w).err, dblock.ErrClosed)
	}
	assert.Equal(t, e.waiting(t, "waited for"), 0, "places in the queue are left after Close")
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_sessions"), 1, "sessions, of the client that is open")
	live(t, waited)
	unlock(t, waited)
	unlock(t, next)
	e.free(t, "held")
	e.free(t, "waited for")
}

func closeTwice(t *testing.T, e *env) {
	c := e.client(t)
	lock(t, c, "held")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { assert.NoError(t, c.Close(context.Background())) })
	}
	all.Wait()
	assert.NoError(t, c.Close(context.Background()))
	e.free(t, "held")
	assert.NoError(t, e.client(t).Close(context.Background()), "closing a client that was never used")
}

func closed(t *testing.T, e *env) {
	c := e.client(t)
	unlock(t, lock(t, c, "any"))
	require.NoError(t, c.Close(t.Context()))
	is(t, assert.ErrOf(c.Lock(t.Context(), "any")), dblock.ErrClosed)
	is(t, assert.ErrOf(c.TryLock(t.Context(), "any")), dblock.ErrClosed)
	is(t, c.Do(t.Context(), "any", func(context.Context, *dblock.Lock) error { return nil }), dblock.ErrClosed)
}

// empty checks that nothing of any client is in the tables.
func (e *env) empty(t testing.TB) {
	t.Helper()
	for _, table := range []string{"dblock_sessions", "dblock_heartbeats", "dblock_waiters"} {
		assert.Equal(t, e.number(t, "SELECT count(*) FROM "+table), 0, "rows are left in", table)
	}
	if n := e.number(t, "SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL OR waiters <> 0 OR attempt "+
		"<> ''"); n != 0 {
		t.Errorf("%d locks are still held or waited for", n)
	}
}

func closeUnderLoad(t *testing.T, e *env) {
	var all sync.WaitGroup
	clients := []Client{e.client(t), e.client(t), e.client(t)}
	for _, c := range clients {
		for i := range 8 {
			name := fmt.Sprintf("name %d", i%3) // each its own: they would meet in the slowest of several queues
			all.Go(func() {
				for {
					l, err := c.Lock(context.Background(), name)
					if err != nil {
						is(t, err, dblock.ErrClosed)
						return
					}
					_ = l.Unlock(context.Background()) // ErrClosed, if Close was faster
				}
			})
		}
	}
	eventually(t, patience, "there are places in all queues", func() bool {
		return e.number(t, "SELECT count(DISTINCT name) FROM dblock_waiters WHERE name <> ''") == 3
	})
	for _, c := range clients {
		all.Go(func() { assert.NoError(t, c.Close(context.Background())) })
	}
	all.Wait()
	e.empty(t)
}

func nothingIsLeft(t *testing.T, e *env) {
	e.empty(t) // and so the test's own connection is open
	already := leak.Running()
	a := e.app(t, 6) // MySQL's clients reserve two each
	clients := []Client{e.clientOf(t, a), e.clientOf(t, a)}
	first := lock(t, clients[0], "held")
	line := e.line(t, "held", 4, clients, background)
	served(t, first, line...)
	lock(t, clients[1], "held when closed")
	lock(t, clients[1], "leased", dblock.Lease(time.Hour))
	stays := e.line(t, "leased", 1, clients, background)
	for _, c := range clients {
		assert.NoError(t, c.Close(t.Context()))
	}
	is(t, within(t, soon, "the waiter returns", stays[0]).err, dblock.ErrClosed)
	e.empty(t)
	a.close() // the pool's own goroutines are the application's
	assert.NoError(t, leak.Find(already))
}

func tokens(t *testing.T, e *env) {
	ctx := limited(t, 2*patience)
	var seen []int64 // under the lock
	var all sync.WaitGroup
	stop := make(chan struct{})
	sweeper := e.app(t, 2)
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := reaper.Sweep(ctx, sweeper.engine(), reaper.Retention(0)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var mu sync.Mutex // for the race detector, which cannot see through the database
	for range 4 {
		all.Go(func() {
			for range 3 { // clients, one after the other
				c := e.client(t)
				for range 12 {
					l, err := c.Lock(ctx, "purged")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen = append(seen, l.Token())
					mu.Unlock()
					assert.NoError(t, l.Unlock(ctx))
				}
				assert.NoError(t, c.Close(ctx))
			}
		})
	}
	all.Wait()
	close(stop)
	sweeping.Wait()
	rising(t, seen...)
	assert.Equal(t, len(seen), 4*3*12, "grants")
}
