package suite

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var contexts = inPlaces(own{
	{"a lock's context has the values of Lock's, and does not end with it", contextValues},
	{"a lock's context ends with ErrNotHeld at Unlock and with ErrClosed at Close", contextCauses},
	{"WaitAtMost bounds the wait and not what is done under the lock", waitAtMost},
}, moving{
	{"a fixed lease ends by itself, and the next waiter has it then", leaseEnds},
	{"a fixed lease ends without any reaper, and TryLock gets the lock", leaseWithoutReaper},
})

func contextValues(t *testing.T, e *env) {
	type key struct{}
	c, holder := e.client(t), e.client(t)
	for _, waits := range []bool{false, true} {
		first := lock(t, holder, "values")
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 42), 5*time.Second)
		if !waits {
			unlock(t, first)
		}
		line := locking(ctx, c, "values")
		if waits {
			e.queued(t, "values", 1)
			unlock(t, first)
		}
		l := granted(t, soon, line)
		cancel()
		assert.Equal(t, l.Context().Value(key{}), 42, "the value is gone")
		if _, has := l.Context().Deadline(); has {
			t.Error("the deadline of Lock's context came along")
		}
		live(t, l)
		unlock(t, l)
	}
}

// Broken by a lock whose context, or that of the function given to Do, ends with the wait.
func waitAtMost(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	held := lock(t, other, "b")
	nothing := func(context.Context, *dblock.Lock) error { t.Error("the function runs without the lock"); return nil }
	brief := dblock.WaitAtMost(50 * time.Millisecond)
	for _, call := range map[string]func() error{
		"Lock":    func() error { _, err := c.Lock(t.Context(), "b", brief); return err },
		"Do":      func() error { return c.Do(t.Context(), "b", nothing, brief) },
		"LockAll": func() error { _, err := c.LockAll(t.Context(), []string{"a", "b"}, brief); return err },
	} {
		err := call()
		calledOff(t, err, context.DeadlineExceeded)
		says(t, err, context.DeadlineExceeded, "WaitAtMost 50ms")
	}
	unlock(t, held)
	e.free(t, "a")
	e.free(t, "b")

	waiter := make(chan error, 1)
	held = lock(t, other, "b")
	go func() {
		waiter <- c.Do(t.Context(), "b", func(ctx context.Context, l *dblock.Lock) error {
			for what, ctx := range map[string]context.Context{"Do": ctx, "the lock": l.Context()} {
				if _, has := ctx.Deadline(); has || ctx.Err() != nil {
					t.Errorf("the context of %s ends with the wait", what)
				}
			}
			return nil
		}, dblock.WaitAtMost(patience))
	}()
	e.queued(t, "b", 1)
	unlock(t, held)
	is(t, within(t, patience, "Do returns", waiter), nil)
	all, err := c.LockAll(t.Context(), []string{"a", "b"}, dblock.WaitAtMost(patience))
	is(t, err, nil)
	if _, has := all.Context().Deadline(); has || all.Context().Err() != nil {
		t.Error("the context of LockAll ends with the wait")
	}
	is(t, all.Unlock(t.Context()), nil)
}

func contextCauses(t *testing.T, e *env) {
	c := e.client(t)
	l := lock(t, c, "unlocked")
	unlock(t, l)
	ended(t, soon, l, dblock.ErrNotHeld)
	a, b := lock(t, c, "a"), lock(t, c, "b", dblock.Owner("host", "thread"))
	require.NoError(t, c.Close(t.Context()))
	ended(t, soon, a, dblock.ErrClosed)
	ended(t, soon, b, dblock.ErrClosed)
	is(t, a.Unlock(context.Background()), dblock.ErrClosed)
	e.free(t, "a")
	e.free(t, "b")
}

// over checks that a lock's context had ended when the next one was granted.
func over(t testing.TB, before *dblock.Lock) {
	t.Helper()
	assert.Error(t, before.Context().Err(), "the next holder was let in before the context of the one before had ended")
	is(t, context.Cause(before.Context()), dblock.ErrLost)
}

func leaseEnds(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "leased", dblock.Lease(2*time.Minute))
	waiter := e.waiter(t, b, "leased")
	e.advance(t, time.Minute)
	live(t, first)
	e.queued(t, "leased", 1)
	e.advance(t, time.Minute)
	next := granted(t, soon, waiter)
	over(t, first)
	rising(t, first.Token(), next.Token())
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	live(t, next)
	unlock(t, next)
	// Unlocked in time, it is a lock like any other.
	third := lock(t, a, "leased", dblock.Lease(time.Minute))
	unlock(t, third)
	e.free(t, "leased")
}

func leaseWithoutReaper(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	const lease = 20 * time.Second
	first := lock(t, a, "leased", dblock.Lease(lease))
	if left := time.Until(refused(t, b, "leased").Until); left > lease {
		t.Errorf("TryLock says that it is held for another %v: want the rest of the lease", left)
	}
	e.advance(t, lease+time.Second)
	ended(t, soon, first, dblock.ErrLost)
	var next *dblock.Lock
	eventually(t, soon, "TryLock gets the lock", func() bool {
		l, err := b.TryLock(t.Context(), "leased", dblock.Lease(lease))
		next = l
		return err == nil
	})
	waiter := e.waiter(t, a, "leased")
	e.advance(t, lease+time.Second)
	third := granted(t, soon, waiter)
	over(t, next)
	rising(t, first.Token(), next.Token(), third.Token())
	unlock(t, third)
	e.free(t, "leased")
}
