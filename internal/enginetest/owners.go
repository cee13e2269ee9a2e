package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

var owners = inPlaces(own{
	{"under a lock's context the same name locks again at once and is counted", reentrancy},
	{"Do locks again within Do, and unlocks when its function panics", doWithinDo},
	{"another goroutine, without the context, waits", otherGoroutine},
	{"an Owner enters its lock again within a client, another thread does not", ownerWithin},
	{"the same Owner takes over from a client that died", ownerAfterCrash},
	{"a take-over by the Owner does not touch the queue", ownerBeforeQueue},
}, moving{
	{"the same Owner in another client takes over at once, and fences the first", ownerElsewhere},
})

func (e *env) holds(t testing.TB, name string) int64 {
	t.Helper()
	return e.number(t, "SELECT holds FROM dblock_locks WHERE name = ?", name)
}

func reentrancy(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	first := lock(t, c, "again")
	var locks []Lock
	ctx := first.Context()
	for n := int64(2); n <= 4; n++ {
		enter := c.Lock
		if n == 3 {
			enter = c.TryLock
		}
		l, err := enter(ctx, "again")
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() != first.Token() {
			t.Errorf("entered again with token %d: want %d, the same", l.Token(), first.Token())
		}
		if holds := e.holds(t, "again"); holds != n {
			t.Errorf("the row counts %d entries: want %d", holds, n)
		}
		locks, ctx = append(locks, l), l.Context()
	}
	// In any order, the one that began it first.
	for i, l := range append([]Lock{first}, locks...) {
		refused(t, other, "again")
		unlock(t, l)
		unlock(t, l) // does not count twice
		if holds := e.holds(t, "again"); holds != int64(3-i) {
			t.Errorf("after %d of 4 Unlocks the row counts %d entries: want %d", i+1, holds, 3-i)
		}
	}
	ended(t, soon, first, dblock.ErrNotHeld)
	unlock(t, lock(t, other, "again"))
	// The context carries the owner still, but holds nothing.
	held := lock(t, other, "again")
	refusedUnder(t, ctx, c, "again")
	unlock(t, held)
}

func refusedUnder(t testing.TB, ctx context.Context, c Client, name string) {
	t.Helper()
	if _, err := c.TryLock(context.WithoutCancel(ctx), name); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Fatalf("TryLock: %v: want ErrNotAcquired", err)
	}
}

func doWithinDo(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	type key struct{}
	reason := errors.New("the function's own")
	err := c.Do(context.WithValue(t.Context(), key{}, "kept"), "done", func(ctx context.Context, outer Lock) error {
		if ctx.Value(key{}) != "kept" {
			t.Error("the context lost its values")
		}
		err := c.Do(ctx, "done", func(ctx context.Context, inner Lock) error {
			if inner.Token() != outer.Token() {
				t.Errorf("token %d within %d", inner.Token(), outer.Token())
			}
			if n := e.holds(t, "done"); n != 2 {
				t.Errorf("the row counts %d entries: want 2", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
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
		defer func() {
			if recover() != "oh" {
				t.Error("the panic did not come through")
			}
		}()
		_ = c.Do(t.Context(), "done", func(context.Context, Lock) error { panic("oh") })
	}()
	e.free(t, "done")
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Do(ctx, "done", func(ctx context.Context, l Lock) error {
		cancel()
		within(t, soon, "the function's context ends with the caller's", ctx.Done())
		live(t, l) // the lock does not
		return ctx.Err()
	})
	is(t, err, context.Canceled)
	e.free(t, "done")
}

func otherGoroutine(t *testing.T, e *env) {
	c := e.client(t)
	first := lock(t, c, "mine")
	refused(t, c, "mine")
	line := e.line(t, "mine", 3, []Client{c}, background)
	served(t, first, line...)
	e.free(t, "mine")
}

func ownerWithin(t *testing.T, e *env) {
	c := e.client(t)
	me := dblock.Owner("host", "thread")
	first := lock(t, c, "owned", me)
	second := lock(t, c, "owned", me)
	if second.Token() != first.Token() || e.holds(t, "owned") != 2 {
		t.Errorf("token %d after %d, %d entries: want the same token and 2", second.Token(), first.Token(), e.holds(t, "owned"))
	}
	for _, other := range []dblock.LockOption{dblock.Owner("host", "Thread"), dblock.Owner("Host", "thread"), dblock.Owner("host", "thread ")} {
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
	if one.Token() != two.Token() || e.holds(t, "owned") != 2 {
		t.Errorf("tokens %d and %d, %d entries: want one token and 2", one.Token(), two.Token(), e.holds(t, "owned"))
	}
	unlock(t, one)
	unlock(t, two)
	e.free(t, "owned")
}

func ownerElsewhere(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t)
	me := dblock.Owner("pod-0", "partition 7")
	first := lock(t, a, "moved", me)
	second := granted(t, soon, locking(t.Context(), b, "moved", me))
	rising(t, []int64{first.Token(), second.Token()})
	e.advance(t, longTTL/5+time.Second) // to the next heartbeat
	ended(t, soon, first, dblock.ErrLost)
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	live(t, second)
	refused(t, c, "moved")

	// And with Unlock before anybody told it.
	first = lock(t, b, "unlocked late", me)
	third, err := a.TryLock(t.Context(), "unlocked late", me)
	if err != nil {
		t.Fatal(err)
	}
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	within(t, soon, "the context ends", first.Context().Done()) // by Unlock, or because it was told after all
	live(t, third)
	refused(t, c, "unlocked late")
	unlock(t, second)
	unlock(t, third)
	e.free(t, "moved")
	e.free(t, "unlocked late")
}

func ownerAfterCrash(t *testing.T, e *env) {
	token := e.orphan(t, "left", "deadsession", 5*time.Minute) // for the database its session is alive
	l := granted(t, soon, locking(t.Context(), e.client(t), "left", dblock.Owner("somewhere", "some thread")))
	rising(t, []int64{token, l.Token()})
	unlock(t, l)
	e.free(t, "left")
}

func ownerBeforeQueue(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	me := dblock.Owner("pod-0", "7")
	first := lock(t, a, "busy", me)
	line := e.line(t, "busy", 2, []Client{e.client(t)}, background)
	second := granted(t, soon, locking(t.Context(), b, "busy", me))
	rising(t, []int64{first.Token(), second.Token()})
	is(t, first.Unlock(context.Background()), dblock.ErrLost)
	e.queued(t, "busy", 2)
	served(t, second, line...)
	e.free(t, "busy")
}
