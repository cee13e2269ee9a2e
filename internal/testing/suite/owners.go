package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var owners = inPlaces(own{
	{"under a lock's context the same name locks again at once and is counted", reentrancy},
	{"Do locks again within Do, and unlocks when its function panics", doWithinDo},
	{"an Owner enters its lock again within a client, another thread does not", ownerWithin},
	{"two goroutines of one Owner lock again and again, and lose nothing", ownerTwice},
	{"a client that waits for a lock of its own caller, by another client, gets ErrDeadlock", waitsForItself},
	{"to lock and unlock again under a lock sends nothing to the database", silentAgain},
}, moving{
	{"the same Owner in another client takes over at once, and fences the first", ownerElsewhere},
})

// Broken by a client that takes the locks of another one for a stranger's, and by one that takes
// what is not in its way for a deadlock.
func waitsForItself(t *testing.T, e *env) {
	a := e.app(t, 6)
	one, two := e.clientOf(t, a), e.clientOf(t, a)
	shared := []dblock.LockOption{dblock.Shared()}
	three := []dblock.LockOption{dblock.Permits(3, 4)}
	for _, c := range []struct {
		says        string
		first, then []dblock.LockOption
		deadlock    bool
	}{
		{"the whole name twice", nil, nil, true},
		{"the whole name, then a share", nil, shared, true},
		{"a share, then the whole name", shared, nil, true},
		{"two shares", shared, shared, false},
		{"more permits than there are", three, three, true},
		{"as many permits as there are", three, []dblock.LockOption{dblock.Permits(1, 4)}, false},
	} {
		err := one.Do(t.Context(), c.says, func(ctx context.Context, _ *dblock.Lock) error {
			return two.Do(ctx, c.says, func(context.Context, *dblock.Lock) error { return nil }, c.then...)
		}, c.first...)
		if errors.Is(err, dblock.ErrDeadlock) != c.deadlock || err != nil && !c.deadlock {
			t.Errorf("%s: %v", c.says, err)
		}
		e.idle(t, c.says)
	}
	all, err := one.LockAll(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	is(t, assert.ErrOf(two.Lock(all.Context(), "b")), dblock.ErrDeadlock)
	is(t, assert.ErrOf(two.LockAll(all.Context(), []string{"0", "a"})), dblock.ErrDeadlock)
	e.free(t, "0")
	is(t, all.Unlock(t.Context()), nil)

	first := lock(t, one, "n")
	ctx := first.Context()
	is(t, assert.ErrOf(two.TryLock(ctx, "n")), dblock.ErrNotAcquired)
	unlock(t, lock(t, two, "another")) // of another name
	waiter := locking(t.Context(), two, "n")
	e.queued(t, "n", 1) // the context of nobody
	unlock(t, first)
	unlock(t, granted(t, soon, waiter))
	held := lock(t, e.client(t), "n")
	waiter = locking(context.WithoutCancel(ctx), two, "n") // under a lock that was released
	e.queued(t, "n", 1)
	unlock(t, held)
	unlock(t, granted(t, soon, waiter))
	if e.wiring.Through != nil {
		return
	}
	is(t, one.Do(t.Context(), "known", func(ctx context.Context, _ *dblock.Lock) error { // the same name elsewhere
		c := e.clientOf(t, e.other(t))
		return c.Do(ctx, "known", func(context.Context, *dblock.Lock) error { return nil })
	}), nil)
	first = lock(t, one, "n")
	tx := beginTx(t, a, e.levels()[0])
	is(t, two.LockTx(first.Context(), tx, "n"), dblock.ErrDeadlock)
	rollback(t, tx)
	unlock(t, first)
}

func reentrancy(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	first := lock(t, c, "again")
	var locks []*dblock.Lock
	ctx := first.Context()
	for n := int64(2); n <= 4; n++ {
		enter := c.Lock
		if n == 3 {
			enter = c.TryLock
		}
		l, err := enter(ctx, "again")
		require.NoError(t, err)
		assert.Equal(t, l.Token(), first.Token(), "token")
		locks, ctx = append(locks, l), l.Context()
	}
	// In any order, the one that began it first.
	for _, l := range append([]*dblock.Lock{first}, locks...) {
		refused(t, other, "again")
		live(t, first)
		unlock(t, l)
		unlock(t, l) // does not count twice
	}
	ended(t, soon, first, dblock.ErrNotHeld)
	unlock(t, lock(t, other, "again"))
	// The context carries the owner still, but holds nothing.
	held := lock(t, other, "again")
	is(t, assert.ErrOf(c.TryLock(context.WithoutCancel(ctx), "again")), dblock.ErrNotAcquired)
	unlock(t, held)
}

func doWithinDo(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	type key struct{}
	reason := errors.New("the function's own")
	err := c.Do(context.WithValue(t.Context(), key{}, "kept"), "done", func(ctx context.Context,
		outer *dblock.Lock) error {
		assert.Equal(t, ctx.Value(key{}), "kept", "the context lost its values")
		err := c.Do(ctx, "done", func(ctx context.Context, inner *dblock.Lock) error {
			assert.Equal(t, inner.Token(), outer.Token(), "token")
			return nil
		})
		assert.NoError(t, err)
		live(t, outer)
		refused(t, other, "done")
		return reason
	})
	is(t, err, reason)
	if errors.Is(err, dblock.ErrLost) {
		t.Errorf("error %v: the lock was not lost", err)
	}
	e.free(t, "done")
	func() {
		defer func() { assert.Equal(t, recover(), "oh", "the panic did not come through") }()
		_ = c.Do(t.Context(), "done", func(context.Context, *dblock.Lock) error { panic("oh") })
	}()
	e.free(t, "done")
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Do(ctx, "done", func(ctx context.Context, l *dblock.Lock) error {
		cancel()
		within(t, soon, "the function's context ends with the caller's", ctx.Done())
		live(t, l) // the lock does not
		return ctx.Err()
	})
	is(t, err, context.Canceled)
	e.free(t, "done")
}

func ownerWithin(t *testing.T, e *env) {
	c := e.client(t)
	me := dblock.Owner("host", "thread")
	first := lock(t, c, "owned", me)
	second := lock(t, c, "owned", me)
	assert.Equal(t, second.Token(), first.Token(), "token")
	for _, other := range []dblock.LockOption{dblock.Owner("host", "Thread"), dblock.Owner("Host", "thread"),
		dblock.Owner("host", "thread ")} {
		if r := refused(t, c, "owned", other); r.Host != "host" || r.Thread != "thread" {
			t.Errorf("held by %q, %q: want host, thread", r.Host, r.Thread)
		}
	}
	refused(t, c, "owned") // without an Owner
	unlock(t, first)
	refused(t, c, "owned")
	unlock(t, second)
	e.free(t, "owned")
	// Two at once are one owner, too: one locks, the other enters.
	a, b := locking(t.Context(), c, "owned", me), locking(t.Context(), c, "owned", me)
	one, two := granted(t, soon, a), granted(t, soon, b)
	assert.Equal(t, one.Token(), two.Token(), "token")
	unlock(t, one)
	live(t, two)
	unlock(t, two)
	e.free(t, "owned")
}

func ownerElsewhere(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t)
	me := dblock.Owner("pod-0", "partition 7")
	first := lock(t, a, "moved", me)
	second := granted(t, soon, locking(t.Context(), b, "moved", me))
	rising(t, first.Token(), second.Token())
	e.advance(t, longTTL/5+time.Second) // to the next heartbeat
	ended(t, soon, first, dblock.ErrLost)
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	live(t, second)
	refused(t, c, "moved")

	// And with Unlock before anybody told it.
	first = lock(t, b, "unlocked late", me)
	third, err := a.TryLock(t.Context(), "unlocked late", me)
	require.NoError(t, err)
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	within(t, soon, "the context ends", first.Context().Done()) // by Unlock, or because it was told after all
	live(t, third)
	refused(t, c, "unlocked late")
	unlock(t, second)
	unlock(t, third)
	e.free(t, "moved")
	e.free(t, "unlocked late")
}

// ownerTwice: each enters what the other has, or waits until that has released it.
func ownerTwice(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	var all sync.WaitGroup
	var over atomic.Bool
	for range 2 {
		all.Go(func() {
			for range 50 {
				l, err := c.Lock(t.Context(), "n", dblock.Owner("host", "thread"))
				if err != nil {
					t.Error(err)
					return
				}
				assert.NoError(t, l.Unlock(t.Context()))
			}
		})
	}
	var rival sync.WaitGroup
	rival.Go(func() { // so that they wait, too
		for !over.Load() {
			l, err := other.Lock(t.Context(), "n")
			if err != nil {
				t.Error(err)
				return
			}
			assert.NoError(t, l.Unlock(t.Context()))
		}
	})
	all.Wait()
	over.Store(true)
	rival.Wait()
	e.free(t, "n")
}

func silentAgain(t *testing.T, e *env) {
	a := e.app(t, 5)
	var sent atomic.Int64
	a.hook(fakedb.Count(&sent, func(c *fakedb.Call) bool { return c.Method == "Run" || c.Method == "Read" }))
	c := e.clientOf(t, a)
	for what, options := range map[string][]dblock.LockOption{
		"whole": nil, "shared": {dblock.Shared()}, "named": {dblock.Owner("host", "thread")},
	} {
		outer := lock(t, c, what, options...)
		before := sent.Load()
		if before == 0 {
			t.Fatal("the statements are not counted")
		}
		for _, enter := range []func(context.Context, string, ...dblock.LockOption) (*dblock.Lock, error){c.Lock,
			c.TryLock} {
			again, err := enter(outer.Context(), what, options...)
			require.NoError(t, err)
			unlock(t, again)
		}
		assert.Equal(t, sent.Load(), before, what, "statements")
		live(t, outer)
		unlock(t, outer)
		e.free(t, what)
	}
}
