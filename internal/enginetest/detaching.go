package enginetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

var detaching = inPlaces(own{
	{"a detached lock outlives its client, with its token, and is taken up by another", outlived},
	{"of many that take up a detached lock one has it", takenUpOnce},
	{"what is not held whole, once and for as long as its client lives is not detached", notDetached},
	{"nobody takes up what is not detached", notTakenUp},
	{"a member of a cohort is detached, and the others wait on", memberOutlived},
}, moving{
	{"a detached lock goes to the next when its time is over, and cannot be taken up any more", detachedForLong},
})

// detach detaches a lock.
func detach(t testing.TB, l Lock, d time.Duration) {
	t.Helper()
	if err := l.Detach(context.Background(), d); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, dblock.ErrNotHeld) || errors.Is(cause, dblock.ErrLost) {
		t.Errorf("its context ends with %v", cause)
	}
	is(t, l.Unlock(context.Background()))
}

func resume(t testing.TB, c Client, name string, token int64) Lock {
	t.Helper()
	l, err := c.Resume(context.Background(), name, token)
	if err != nil {
		t.Fatal(err)
	}
	if l.Token() != token {
		t.Errorf("token %d: want %d", l.Token(), token)
	}
	return l
}

func outlived(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "edited")
	detach(t, first, time.Hour)
	is(t, first.Detach(context.Background(), time.Hour), dblock.ErrNotHeld)
	if err := a.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := b.TryLock(context.Background(), "edited"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("it is free: %v", err)
	}
	next := locking(t.Context(), b, "edited")
	e.queued(t, "edited", 1)
	for range 3 { // and on, and on
		detach(t, resume(t, b, "edited", first.Token()), time.Hour)
	}
	again := resume(t, e.client(t), "edited", first.Token())
	live(t, again)
	unlock(t, again)
	l := granted(t, soon, next)
	rising(t, []int64{first.Token(), l.Token()})
	unlock(t, l)
	e.free(t, "edited")
}

func takenUpOnce(t *testing.T, e *env) {
	a := e.client(t)
	clients := []Client{a, e.client(t), a, e.client(t), a, a}
	for range 5 {
		first := lock(t, a, "edited")
		detach(t, first, time.Hour)
		locks := make(chan Lock, len(clients))
		var refused atomic.Int64
		for _, c := range clients {
			go func() {
				l, err := c.Resume(context.Background(), "edited", first.Token())
				if err != nil && !errors.Is(err, dblock.ErrNotHeld) {
					t.Error(err)
				}
				if err != nil {
					refused.Add(1)
				}
				locks <- l
			}()
		}
		held := 0
		for range clients {
			if l := within(t, patience, "every call returns", locks); l != nil {
				held++
				live(t, l)
				unlock(t, l)
			}
		}
		if held != 1 || refused.Load() != int64(len(clients)-1) {
			t.Fatalf("%d have it: want 1", held)
		}
	}
}

func notDetached(t *testing.T, e *env) {
	c := e.client(t)
	ctx := context.Background()
	for what, options := range map[string][]dblock.LockOption{
		"shared": {dblock.Shared()}, "permits": {dblock.Permits(2, 3)}, "with a lease": {dblock.Lease(time.Hour)},
	} {
		l := lock(t, c, what, options...)
		is(t, l.Detach(ctx, time.Hour), dblock.ErrUnsupported)
		live(t, l)
		unlock(t, l)
	}
	l := lock(t, c, "n")
	is(t, l.Detach(ctx, time.Second-1), dblock.ErrInvalidOption)
	again, err := c.Lock(l.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	is(t, l.Detach(ctx, time.Hour), dblock.ErrUnsupported)
	unlock(t, again)
	live(t, l)
	e.end(t, e.session(t, "n"))
	is(t, l.Detach(ctx, time.Hour), dblock.ErrLost)
	is(t, l.Unlock(ctx), dblock.ErrLost)
}

func notTakenUp(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	refuse := func(what string, token int64) {
		t.Helper()
		if _, err := b.Resume(context.Background(), "n", token); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuse("one that lives", l.Token())
	detach(t, l, time.Hour)
	refuse("another token", l.Token()+1)
	unlock(t, resume(t, b, "n", l.Token()))
	refuse("one that was unlocked", l.Token())
	shared := lock(t, a, "n", dblock.Shared())
	refuse("a share", shared.Token())
	unlock(t, shared)
}

func memberOutlived(t *testing.T, e *env) {
	c := e.client(t)
	first := lock(t, c, "n")
	line := e.line(t, "n", 3, []Client{c}, background)
	unlock(t, first)
	member := granted(t, soon, line[0])
	detach(t, member, time.Hour)
	back := resume(t, e.client(t), "n", member.Token())
	unlock(t, back)
	var all []int64
	for _, next := range line[1:] {
		l := granted(t, soon, next)
		all = append(all, l.Token())
		unlock(t, l)
	}
	rising(t, append([]int64{member.Token()}, all...))
}

func detachedForLong(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "n")
	detach(t, first, 2*longTTL)
	next := locking(t.Context(), b, "n")
	e.advance(t, longTTL)
	select {
	case o := <-next:
		t.Fatalf("it is granted before its time is over: %v", o.err)
	default:
	}
	e.advance(t, longTTL+time.Second)
	l := granted(t, soon, next)
	rising(t, []int64{first.Token(), l.Token()})
	if _, err := a.Resume(context.Background(), "n", first.Token()); !errors.Is(err, dblock.ErrNotHeld) {
		t.Errorf("taken up late: %v", err)
	}
	unlock(t, l)
	second := lock(t, a, "m")
	detach(t, second, longTTL)
	e.advance(t, longTTL+time.Second)
	if _, err := a.Resume(context.Background(), "m", second.Token()); !errors.Is(err, dblock.ErrNotHeld) {
		t.Errorf("taken up when its time was over: %v", err)
	}
}
