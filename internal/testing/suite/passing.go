package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var passing = inPlaces(own{
	{"goroutines of one client that wait together are one place, and pass the lock on in the order in which they asked",
		passedOn},
	{"a client whose goroutines lock one name all the time lets each other client have its turn", turnsOfClients},
	{"a lock that was passed on is downgraded, changed, entered again and asked for as any other", usedAfterPassing},
	{"a lock that was passed on guards a transaction as any other, and has that end before the next",
		guardedAfterPassing},
	{"Inspect shows the holder of a lock that was passed on once it uses the lock by itself", shownHolder},
	{"Break of a lock that was passed on ends it for its holder, and those behind it keep their places",
		brokenAfterPassing},
	{"an Ask for a lock that is passed on reaches one holder", askedOnce},
	{"Break that meets a lock whose holder is detached meanwhile takes it from that", brokenWhileDetached},
	{"Break with the token of a lock that is passed on takes it, and with one from before nothing", brokenByToken},
	{"the death of a client that passes a lock on is a loss for its holder alone, and those behind it ask anew",
		diedWhilePassing},
	{"the transaction of UnlockTx releases a lock that was passed on", unlockTxAfterPassing},
	{"a transaction that has written guards a lock that was passed on", guardedByAWriter},
	{"a transaction that has written releases a lock that was passed on, if it commits", releasedByAWriter},
	{"a cycle of waiters through a lock that was passed on is found", cycleThroughPassing},
	{"a cycle of waiters through LockTx under a lock that was passed on is found", cycleThroughLockTx},
	{"Close of a client that passes a lock on leaves it to another client", closedWhilePassing},
	{"waiters that give up before the grant or while the lock is passed on are passed over", leftWhilePassing},
	{"waiters that all give up leave neither a place nor the lock", allLeft},
	{"an Owner that the application has named waits in a place of its own", ownerAlone},
}, moving{
	{"Inspect shows the holder of a lock that was passed on once it has held it for longer than a heartbeat",
		shownLater},
	{"a lock that was passed on guards a transaction while its holder is written for a heartbeat", guardedWhileShown},
})

func passedOn(t *testing.T, e *env) {
	const n = 5
	r := e.relay(t, "n", n)
	if got := fmt.Sprint(r.joined); got != "[1 5]" {
		t.Fatalf("they have joined by %v, not together", got)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_waiters"), 1, "places")
	if waiting := r.client.Stats().Waiting; waiting != n {
		t.Errorf("Stats says that %d wait, want %d", waiting, n)
	}
	behind := locking(t.Context(), e.client(t), "n")
	e.queued(t, "n", n+1)
	unlock(t, r.before)
	last := r.before.Token()
	for i, waiter := range r.waiters {
		l := granted(t, soon, waiter)
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		for j, other := range append(r.waiters[i+1:], behind) {
			if len(other) > 0 {
				t.Fatalf("%d has the lock as well as %d", i+1+j, i)
			}
		}
		unlock(t, l)
	}
	if removed, changed := r.removed.Load(), r.changed.Load(); removed != 1 || changed != 0 {
		t.Errorf("%d statements released it, and %d changed it: want 1 and 0", removed, changed)
	}
	next := granted(t, soon, behind)
	if next.Token() <= last {
		t.Errorf("token %d after %d", next.Token(), last)
	}
	unlock(t, next)
	e.free(t, "n")
}

// turnsOfClients: whoever has joined is served after those before it, though its rival never
// pauses.
func turnsOfClients(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	var busy sync.WaitGroup
	var over atomic.Bool
	var mu sync.Mutex
	var tokens []int64
	for range 8 {
		busy.Go(func() {
			for !over.Load() {
				l, err := a.Lock(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				tokens = append(tokens, l.Token())
				mu.Unlock()
				assert.NoError(t, l.Unlock(t.Context()))
			}
		})
	}
	for range 10 {
		unlock(t, granted(t, soon, locking(t.Context(), b, "n")))
	}
	over.Store(true)
	busy.Wait()
	rising(t, tokens)
	e.free(t, "n")
}

func shownHolder(t *testing.T, e *env) {
	r := e.relay(t, "n", 3)
	l := r.second(t)
	seen := func() inspect.Info {
		t.Helper()
		info, err := r.client.Inspect(t.Context(), "n")
		if err != nil || len(info.Holders) != 1 {
			t.Fatal(info, err)
		}
		return info
	}
	cohort := seen()
	if cohort.Holders[0].Token != l.Token()+1 || cohort.Queued != 0 {
		t.Errorf("%+v: want the last token of those who pass it on", cohort)
	}
	is(t, l.Record(t.Context(), "note", ""), nil)
	alone := seen()
	if h := alone.Holders[0]; h.Token != l.Token() || h.Thread == cohort.Holders[0].Thread || alone.Queued != 1 {
		t.Errorf("%+v, before it %+v: want the holder alone, and one waiter", alone, cohort)
	}
	live(t, l)
	unlock(t, l)
	r.rest(t, e, l, r.waiters[2])
}

// heldForLong lets time go on until the database shows a lock's holder alone.
func (r *relay) heldForLong(t *testing.T, e *env, l *dblock.Lock) {
	t.Helper()
	e.advanceUntil(t, longTTL, "the database shows who has the lock", func() bool {
		info, err := r.client.Inspect(t.Context(), l.Name())
		return err == nil && len(info.Holders) == 1 && info.Holders[0].Token == l.Token()
	})
}

// Broken by writing a holder that has passed the lock on meanwhile.
func shownLater(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	r.heldForLong(t, e, l)
	e.queued(t, "n", 2)
	live(t, l)
	unlock(t, l)
	last := granted(t, soon, r.waiters[2])
	e.advance(t, longTTL/5)
	unlock(t, last)
	r.rest(t, e, last, r.waiters[3])
}

func usedAfterPassing(t *testing.T, e *env) {
	for what, use := range map[string]func(t *testing.T, r *relay, l *dblock.Lock){
		"again": func(t *testing.T, r *relay, l *dblock.Lock) {
			again, err := r.client.Lock(l.Context(), "again")
			require.NoError(t, err)
			if again.Token() != l.Token() {
				t.Errorf("token %d within %d", again.Token(), l.Token())
			}
			unlock(t, again)
		},
		"Downgrade": func(t *testing.T, _ *relay, l *dblock.Lock) { is(t, l.Downgrade(t.Context()), nil) },
		"Upgrade": func(t *testing.T, r *relay, l *dblock.Lock) {
			is(t, l.Downgrade(t.Context()), nil)
			is(t, l.TryUpgrade(t.Context()), nil)
			refused(t, r.client, "Upgrade")
		},
		"Raise": func(t *testing.T, r *relay, l *dblock.Lock) {
			high := l.Token() + time.Hour.Microseconds()
			if got, err := raiseToken(t.Context(), l, high); err != nil || got != high || l.Token() != high {
				t.Error(got, err)
			}
		},
		"Ask": func(t *testing.T, r *relay, l *dblock.Lock) {
			asked := l.Asked()
			require.NoError(t, r.client.Ask(t.Context(), "Ask", "why not"))
			assert.Equal(t, within(t, soon, "it is asked", asked), "why not", "asked")
		},
	} {
		r := e.relay(t, what, 4)
		l := r.second(t)
		use(t, r, l)
		live(t, l)
		unlock(t, l)
		r.rest(t, e, l, r.waiters[2:]...)
	}
}

func brokenAfterPassing(t *testing.T, e *env) {
	for how, tokens := range map[string]func(l *dblock.Lock) []int64{
		"all":          func(*dblock.Lock) []int64 { return nil },
		"by its token": func(l *dblock.Lock) []int64 { return []int64{l.Token()} },
		"by the last":  func(l *dblock.Lock) []int64 { return []int64{l.Token() + 2} },
	} {
		r := e.relay(t, how, 4)
		behind := locking(t.Context(), e.client(t), how)
		e.queued(t, how, 5)
		l := r.second(t)
		if n, err := e.client(t).Break(t.Context(), how, "a test", tokens(l)...); err != nil || n != 1 {
			t.Fatal(how, n, err)
		}
		ended(t, soon, l, dblock.ErrLost)
		is(t, l.Unlock(context.Background()), dblock.ErrLost)
		r.rest(t, e, l, r.waiters[2], r.waiters[3], behind)
	}
}

// Broken by a reason that stays with the lock while it is passed on: the next holder would be asked
// by it, or would not hear the same reason.
func askedOnce(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	c := e.client(t)
	require.NoError(t, c.Ask(t.Context(), "n", "please"))
	assert.Equal(t, within(t, soon, "it is asked", l.Asked()), "please", "asked")
	unlock(t, l)
	next := granted(t, soon, r.waiters[2])
	asked := next.Asked()
	if r.client.Ping(t.Context()) != nil || len(asked) > 0 {
		t.Error("the next holder is asked as well")
	}
	require.NoError(t, c.Ask(t.Context(), "n", "please"))
	assert.Equal(t, within(t, soon, "it is asked", asked), "please", "asked")
	unlock(t, next)
	r.rest(t, e, next, r.waiters[3])
}

// describes reports whether a call reads all holders of names.
func describes(c *fakedb.Call) bool { return c.Method == "Read" && c.Waiters > 0 }

func brokenWhileDetached(t *testing.T, e *env) {
	for how, tokens := range map[string]func(l *dblock.Lock) []int64{
		"all":          func(*dblock.Lock) []int64 { return nil },
		"by its token": func(l *dblock.Lock) []int64 { return []int64{l.Token()} },
		"by the last":  func(l *dblock.Lock) []int64 { return []int64{l.Token() + 2} },
	} {
		r := e.relay(t, how, 4)
		l := r.second(t)
		a := e.app(t, 5)
		a.hook(fakedb.After(describes, sync.OnceFunc(func() { assert.NoError(t, l.Record(t.Context(), "note", "")) })))
		if n, err := e.clientOf(t, a).Break(t.Context(), how, "a test", tokens(l)...); err != nil || n != 1 {
			t.Fatal(how, n, err)
		}
		ended(t, soon, l, dblock.ErrLost)
		r.rest(t, e, l, r.waiters[2:]...)
	}
}

func brokenByToken(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	c := e.client(t)
	for _, before := range []int64{r.before.Token(), l.Token() - 1} {
		if n, err := c.Break(t.Context(), "n", "a test", before); n != 0 || err != nil {
			t.Error(n, err)
		}
		live(t, l)
	}
	if n, err := c.Break(t.Context(), "n", "a test", l.Token()); n != 1 || err != nil {
		t.Error(n, err)
	}
	ended(t, soon, l, dblock.ErrLost)
	r.rest(t, e, l, r.waiters[2:]...)
}

func diedWhilePassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	other := locking(t.Context(), e.client(t), "n")
	e.queued(t, "n", 1)
	e.end(t, e.session(t, "n"))
	is(t, r.client.Ping(t.Context()), dblock.ErrLost)
	ended(t, soon, l, dblock.ErrLost)
	unlock(t, granted(t, patience, other)) // it came before those who ask anew
	r.anew(t, e, l, r.waiters[2:]...)
}

func cycleThroughPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 3, dblock.WithDeadlockCheck(50*time.Millisecond))
	other := e.client(t, dblock.WithDeadlockCheck(50*time.Millisecond))
	m := lock(t, other, "m")
	l := r.second(t)
	back := locking(m.Context(), other, "n") // behind the third
	ahead := locking(l.Context(), r.client, "m")
	select {
	case o := <-back:
		is(t, o.err, dblock.ErrDeadlock)
		unlock(t, m)
		unlock(t, granted(t, soon, ahead))
		unlock(t, l)
	case o := <-ahead:
		is(t, o.err, dblock.ErrDeadlock)
		unlock(t, l)
		unlock(t, granted(t, soon, r.waiters[2]))
		unlock(t, granted(t, soon, back))
		unlock(t, m)
		return
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
	unlock(t, granted(t, soon, r.waiters[2]))
}

func closedWhilePassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	r.second(t)
	behind := locking(t.Context(), e.client(t), "n")
	e.queued(t, "n", 1)
	assert.NoError(t, r.client.Close(t.Context()))
	for _, waiter := range r.waiters[2:] {
		if o := within(t, soon, "a waiter of the closed client returns", waiter); !errors.Is(o.err, dblock.ErrClosed) {
			t.Errorf("%v", o.err)
		}
	}
	unlock(t, granted(t, soon, behind))
	e.free(t, "n")
}

func leftWhilePassing(t *testing.T, e *env) {
	const n = 7
	r := e.relay(t, "n", n)
	leave := func(i int) {
		t.Helper()
		r.cancels[i]()
		calledOff(t, within(t, soon, fmt.Sprintf("%d gives up", i), r.waiters[i]).err, context.Canceled)
	}
	leave(2) // in the queue
	l := r.second(t)
	leave(3)
	leave(6)
	unlock(t, l)
	r.rest(t, e, l, r.waiters[4], r.waiters[5])
	assert.Equal(t, r.removed.Load(), 1, "statements for those who gave up, and the one who was the last")
}

func allLeft(t *testing.T, e *env) {
	for _, served := range []int{0, 1} { // in the queue; behind a holder
		name := fmt.Sprint("n", served)
		r := e.relay(t, name, 4)
		var l *dblock.Lock
		if served > 0 {
			unlock(t, r.before)
			l = granted(t, soon, r.waiters[0])
		}
		behind := locking(t.Context(), e.client(t), name)
		e.queued(t, name, 1+4*(1-served))
		for i := served; i < 4; i++ {
			r.cancels[i]()
			calledOff(t, within(t, soon, "it gives up", r.waiters[i]).err, context.Canceled)
		}
		if served == 0 {
			e.queued(t, name, 1)
			l = r.before
		}
		unlock(t, l)
		unlock(t, granted(t, soon, behind))
		e.free(t, name)
	}
}

// ownerAlone: what is asked for under the context of such an Owner's lock, too, since it may hold
// what others wait for.
func ownerAlone(t *testing.T, e *env) {
	r := e.relay(t, "n", 2)
	r.gate, r.joined = make(chan struct{}), nil
	r.came.Store(0)
	outer, err := r.client.Lock(t.Context(), "outer", dblock.Owner("h", "t"))
	require.NoError(t, err)
	waiting := []<-chan outcome{locking(t.Context(), r.client, "n")}
	eventually(t, patience, "a request is being sent", func() bool { return r.came.Load() == 1 })
	waiting = append(waiting,
		locking(t.Context(), r.client, "n"),
		locking(t.Context(), r.client, "n", dblock.Owner("h", "u")),
		locking(outer.Context(), r.client, "n"))
	eventually(t, patience, "all have asked, the Owners by requests of their own", func() bool {
		return r.came.Load() == 3 && r.client.Stats().Waiting == 4 // two are in the queue
	})
	close(r.gate)
	e.queued(t, "n", 2+len(waiting))
	if got := fmt.Sprint(r.joined); got != "[1 1 1 1]" {
		t.Errorf("they have joined by %v: want each alone", got)
	}
	unlock(t, r.before)
	for _, w := range append(r.waiters, waiting...) {
		go func() {
			if o := <-w; o.err == nil {
				_ = o.lock.Unlock(context.Background())
			}
		}()
	}
	e.free(t, "n")
	unlock(t, outer)
}
