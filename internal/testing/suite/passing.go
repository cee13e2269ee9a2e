package suite

import (
	"context"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var passing = inPlaces(own{
	{"goroutines of one client that wait together are one place, and pass the lock on in the order in which they asked",
		passedOn},
	{"Break of a lock that was passed on ends it for its holder, and those behind it keep their places",
		brokenAfterPassing},
	{"an Ask for a lock that is passed on reaches one holder", askedOnce},
	{"Break with the token of a lock that is passed on takes it, and with one from before nothing", brokenByToken},
	{"a transaction guards a lock that was passed on, has it written or not, and ends before the next has the lock",
		guardedAfterPassing},
	{"a transaction releases a lock that was passed on, has it written or not, if it commits", releasedAfterPassing},
	{"a cycle of waiters through LockTx under a lock that was passed on is found", cycleThroughLockTx},
}, moving{
	{"Inspect shows the holder of a lock that was passed on once it has held it for longer than a heartbeat",
		shownLater},
	{"a lock that was passed on guards a transaction while its holder is written for a heartbeat", guardedWhileShown},
})

func passedOn(t *testing.T, e *env) {
	const n = 5
	r := e.relay(t, "n", n)
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_waiters"), 1, "places")
	assert.Equal(t, r.client.Stats().Waiting, n, "waiting")
	served(t, r.before, append(r.waiters, e.waiter(t, e.client(t), "n"))...)
	if removed, changed := r.removed.Load(), r.changed.Load(); removed != 1 || changed != 0 {
		t.Errorf("%d statements released it, and %d changed it: want 1 and 0", removed, changed)
	}
	e.free(t, "n")
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

// Of two Breaks the second meets a lock whose holder is detached meanwhile.
func brokenAfterPassing(t *testing.T, e *env) {
	for how, tokens := range map[string]func(l *dblock.Lock) []int64{
		"all":          func(*dblock.Lock) []int64 { return nil },
		"by its token": func(l *dblock.Lock) []int64 { return []int64{l.Token()} },
		"by the last":  func(l *dblock.Lock) []int64 { return []int64{l.Token() + 2} },
	} {
		for _, meanwhile := range []func(l *dblock.Lock) error{
			func(*dblock.Lock) error { return nil },
			func(l *dblock.Lock) error { return l.Record(t.Context(), "note", "") },
		} {
			r := e.relay(t, how, 4)
			behind := e.waiter(t, e.client(t), how)
			l := r.second(t)
			a := e.app(t, 5)
			a.hook(fakedb.After(describes, sync.OnceFunc(func() { assert.NoError(t, meanwhile(l)) })))
			breaks(t, e.clientOf(t, a), how, 1, tokens(l)...)
			ended(t, soon, l, dblock.ErrLost)
			is(t, l.Unlock(context.Background()), dblock.ErrLost)
			r.rest(t, e, l, r.waiters[2], r.waiters[3], behind)
		}
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

func brokenByToken(t *testing.T, e *env) {
	r := e.relay(t, "n", 4)
	l := r.second(t)
	c := e.client(t)
	for _, before := range []int64{r.before.Token(), l.Token() - 1} {
		breaks(t, c, "n", 0, before)
		live(t, l)
	}
	breaks(t, c, "n", 1, l.Token())
	ended(t, soon, l, dblock.ErrLost)
	r.rest(t, e, l, r.waiters[2:]...)
}
