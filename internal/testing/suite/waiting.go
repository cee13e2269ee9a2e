package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var waiting = inPlaces(own{
	{"waiters of several clients are granted in the order in which they queued",
		func(t *testing.T, e *env) { fifo(t, e, 12) }},
	{"a waiter that is cancelled at the head, in the middle or at the tail leaves the order of the others as it is",
		cancelling},
	{"a cancel in the moment of the grant leaves nothing behind", cancelAtGrant},
	{"a deadline ends the waiting, and the error names the holder", deadline},
	{"a context that has ended already gets no lock and leaves no place in the queue", endedBefore},
	{"TryLock on a held lock names the holder, and writes nothing", tryLockTells},
	{"an idle lock can be locked and unlocked again and again without waiting", idle},
})

// exclusion has many goroutines read and write a number that is not theirs alone. It is loaded and
// stored atomically only for the race detector's sake, which cannot see through the database.
func exclusion(t *testing.T, e *env, clients, goroutines, rounds int) {
	var all []Client
	for range clients {
		all = append(all, e.client(t))
	}
	exclusionAmong(t, e, all, goroutines, rounds)
}

func exclusionAmong(t *testing.T, e *env, clients []Client, goroutines, rounds int) {
	var number, inside atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var tokens []int64
	ctx := limited(t, 40*time.Second)
	for _, c := range clients {
		for range goroutines {
			all.Go(func() {
				for range rounds {
					l, err := c.Lock(ctx, "one at a time")
					if err != nil {
						t.Error(err)
						return
					}
					assert.Equal(t, inside.Add(1), 1, "hold the lock at once")
					n := number.Load()
					runtime.Gosched()
					number.Store(n + 1)
					mu.Lock()
					tokens = append(tokens, l.Token())
					mu.Unlock()
					inside.Add(-1)
					assert.NoError(t, l.Unlock(ctx))
				}
			})
		}
	}
	all.Wait()
	assert.Equal(t, number.Load(), int64(len(clients)*goroutines*rounds), "updates that were not lost")
	rising(t, tokens...)
	e.free(t, "one at a time")
}

// rising checks tokens in the order of their grants.
func rising(t testing.TB, tokens ...int64) {
	t.Helper()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Fatalf("token %d of grant %d is not above %d of the one before", tokens[i], i, tokens[i-1])
		}
	}
}

// line queues waiters one after another, in turn from each of the clients.
func (e *env) line(
	t testing.TB, name string, n int, clients []Client, contexts func(i int) context.Context,
) []<-chan outcome {
	t.Helper()
	line := make([]<-chan outcome, n)
	before := e.waiting(t, name)
	for i := range n {
		line[i] = locking(contexts(i), clients[i%len(clients)], name)
		e.queued(t, name, before+i+1)
	}
	return line
}

func background(int) context.Context { return context.Background() }

// served checks that the waiters in the line get the lock in order once it is unlocked, and no
// others do.
func served(t testing.TB, first *dblock.Lock, line ...<-chan outcome) {
	t.Helper()
	tokens := []int64{first.Token()}
	for i, next := range line {
		for _, later := range line[i:] {
			stillWaits(t, 0, later)
		}
		unlock(t, first)
		first = granted(t, soon, next)
		tokens = append(tokens, first.Token())
	}
	unlock(t, first)
	rising(t, tokens...)
}

func fifo(t *testing.T, e *env, n int) {
	first := lock(t, e.client(t), "queue")
	line := e.line(t, "queue", n, []Client{e.client(t), e.client(t), e.client(t)}, background)
	served(t, first, line...)
	e.free(t, "queue")
}

func cancelling(t *testing.T, e *env) {
	holder := e.client(t)
	clients := []Client{e.client(t), e.client(t), e.client(t)}
	for _, leaving := range []int{0, 2, 4} {
		name := fmt.Sprintf("cancelled %d of 5", leaving)
		first := lock(t, holder, name)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		line := e.line(t, name, 5, clients, func(i int) context.Context {
			if i == leaving {
				return ctx
			}
			return context.Background()
		})
		cancel()
		o := within(t, soon, "the cancelled waiter returns", line[leaving])
		calledOff(t, o.err, context.Canceled)
		saysOnce(t, o.err, context.Canceled, context.Canceled.Error())
		e.queued(t, name, 4)
		eventually(t, soon, "the lock's row counts 4 waiters", func() bool { // what is read may not be committed yet
			return e.number(t, "SELECT waiters FROM dblock_locks WHERE name = ?", name) == 4
		})
		served(t, first, slices.Delete(line, leaving, leaving+1)...)
		e.free(t, name)
	}
}

func cancelAtGrant(t *testing.T, e *env) {
	holder, waiter, third := e.client(t), e.client(t), e.client(t)
	for range 20 {
		first := lock(t, holder, "either")
		ctx, cancel := context.WithCancel(t.Context())
		line := e.line(t, "either", 1, []Client{waiter}, func(int) context.Context { return ctx })
		go cancel()
		unlock(t, first)
		switch o := within(t, soon, "Lock returns", line[0]); {
		case o.err == nil:
			live(t, o.lock)
			unlock(t, o.lock)
		default:
			calledOff(t, o.err, context.Canceled)
		}
		unlock(t, granted(t, soon, locking(context.Background(), third, "either")))
		e.free(t, "either")
	}
}

func deadline(t *testing.T, e *env) {
	first := lock(t, e.client(t, dblock.WithHost("here")), "held", dblock.Metadata(nil))
	since := time.Now()
	ctx := limited(t, dbtest.Scale(4*time.Second)) // a look was made by then
	o := within(t, soon, "Lock returns", locking(ctx, e.client(t), "held"))
	is(t, o.err, dblock.ErrNotAcquired, context.DeadlineExceeded)
	tells(t, e, o.err, first, since, 1)
	e.queued(t, "held", 0)
	live(t, first)
	unlock(t, first)
	e.free(t, "held")
}

// tells checks what a NotAcquiredError says about a lock of a client with host "here" and longTTL.
func tells(t *testing.T, e *env, err error, holder *dblock.Lock, since time.Time, waiters int) {
	t.Helper()
	var n *dblock.NotAcquiredError
	if !errors.As(err, &n) {
		t.Fatalf("error %v: want a *NotAcquiredError", err)
	}
	var l *dblock.LockError
	if !errors.As(err, &l) || l.Name != holder.Name() {
		t.Errorf("error %v does not name the lock", err)
	}
	if n.Host != "here" || n.Thread == "" || n.Token != holder.Token() || n.Waiters != waiters {
		t.Errorf("it tells of host %q, thread %q, token %d, %d waiting: want here, some thread, %d and %d",
			n.Host, n.Thread, n.Token, n.Waiters, holder.Token(), waiters)
	}
	assert.Equal(t, n.Thread, e.text(t, "SELECT thread FROM dblock_locks WHERE name = ?", holder.Name()), "thread")
	if acquired := e.number(t, "SELECT acquired_at FROM dblock_locks WHERE name = ?",
		holder.Name()); n.Since.UnixMicro() != acquired {
		t.Errorf("since %v: want %v", n.Since, time.UnixMicro(acquired))
	}
	if left := time.Until(n.Until); left < longTTL/2 || left > longTTL || n.Since.Sub(since).Abs() > 10*time.Second {
		t.Errorf("since %v until %v: want about %v and at most a TTL from now", n.Since, n.Until, since)
	}
}

func endedBefore(t *testing.T, e *env) {
	c := e.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"never seen", "free", "held"} {
		var held *dblock.Lock
		if name != "never seen" {
			held = lock(t, c, name)
			if name == "free" {
				unlock(t, held)
			}
		}
		for _, try := range []func(context.Context, string, ...dblock.LockOption) (*dblock.Lock, error){c.Lock,
			c.TryLock} {
			_, err := try(ctx, name)
			saysOnce(t, err, context.Canceled, context.Canceled.Error())
			if errors.Is(err, dblock.ErrNotAcquired) { // neither a holder nor a queue was seen
				t.Errorf("a context that had ended: %v", err)
			}
		}
		if name == "held" {
			live(t, held)
			unlock(t, held)
		}
		e.free(t, name)
	}
}

// fingerprint is a row of dblock_locks as far as the database shows it.
func (e *env) fingerprint(t testing.TB, name string) string {
	t.Helper()
	columns := []string{"session_id", "host", "thread", "attempt", "token", "acquired_at", "waiters", "next_ticket",
		"metadata"}
	if e.wiring.Kind == Postgres {
		columns = append(columns, "xmin", "xmax", "ctid") // any write, and any lock on the row
	}
	var row string
	for _, column := range columns {
		row += column + "=" + e.text(t, "SELECT "+column+" FROM dblock_locks WHERE name = ?", name) + " "
	}
	return row
}

func tryLockTells(t *testing.T, e *env) {
	since := time.Now()
	first := lock(t, e.client(t, dblock.WithHost("here")), "held")
	other, waiter := e.client(t), e.client(t)
	refused(t, other, "held") // from now on it has a session
	line := e.line(t, "held", 1, []Client{waiter}, background)
	before := e.fingerprint(t, "held")
	for range 5 {
		_, err := other.TryLock(context.Background(), "held")
		is(t, err, dblock.ErrNotAcquired)
		tells(t, e, err, first, since, 1)
	}
	assert.Equal(t, e.fingerprint(t, "held"), before, "the row after TryLock")
	served(t, first, line...)
}

func idle(t *testing.T, e *env) {
	c := e.client(t)
	var tokens []int64
	for i := range 50 {
		l, err := c.TryLock(context.Background(), "idle")
		require.NoError(t, err, "round", i)
		tokens = append(tokens, l.Token())
		unlock(t, l)
	}
	rising(t, tokens...)
}
