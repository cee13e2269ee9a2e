package enginetest

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock"
)

var permits = []test{
	{"as many permits are held as there are, and no more", permitsHeld},
	{"a large request at the head is not overtaken by small ones behind it", noBarging},
	{"permits come back in any order", anyOrder},
	{"a semaphore of another size is refused until the name is idle", otherSize},
	{"permits come back when their holder dies", permitsOfTheDead},
	{"under a permit's context Permits takes more, and Lock without Permits takes all", permitsAreNotEntered},
}

func permitsHeld(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	p1, p2 := lock(t, a, "s", dblock.Permits(2, 3)), lock(t, b, "s", dblock.Permits(1, 3))
	rising(t, []int64{p1.Token(), p2.Token()})
	refused(t, a, "s", dblock.Permits(1, 3))
	refused(t, a, "s")
	next := locking(context.Background(), a, "s", dblock.Permits(1, 3))
	e.queued(t, "s", 1)
	unlock(t, p2)
	p3 := granted(t, soon, next)
	live(t, p1)
	unlock(t, p3)
	unlock(t, p1)
	e.idle(t, "s")
}

func noBarging(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	p := lock(t, a, "s", dblock.Permits(1, 4))
	large := locking(context.Background(), b, "s", dblock.Permits(4, 4))
	e.queued(t, "s", 1)
	small1 := locking(context.Background(), a, "s", dblock.Permits(1, 4))
	e.queued(t, "s", 2)
	small2 := locking(context.Background(), b, "s", dblock.Permits(2, 4))
	e.queued(t, "s", 3)
	refused(t, a, "s", dblock.Permits(1, 4)) // there is room, and a queue
	if len(small1)+len(small2) > 0 {
		t.Fatal("a small request barged")
	}
	unlock(t, p)
	l := granted(t, soon, large)
	if len(small1)+len(small2) > 0 {
		t.Fatal("more is held than there is")
	}
	unlock(t, l)
	unlock(t, granted(t, soon, small1)) // both with the same commit
	unlock(t, granted(t, soon, small2))
	e.idle(t, "s")
}

func anyOrder(t *testing.T, e *env) {
	a := e.client(t)
	var held []Lock
	for range 5 {
		held = append(held, lock(t, a, "s", dblock.Permits(1, 5)))
	}
	for released, i := range []int{2, 0, 4, 1, 3} {
		refused(t, a, "s", dblock.Permits(released+1, 5))
		unlock(t, held[i])
	}
	e.idle(t, "s")
}

func otherSize(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	p := lock(t, a, "s", dblock.Permits(1, 3))
	for _, other := range [][]dblock.LockOption{{dblock.Permits(1, 4)}, {dblock.Shared()}} {
		_, err := b.Lock(t.Context(), "s", other...)
		is(t, err, dblock.ErrCapacity)
		_, err = b.TryLock(t.Context(), "s", other...)
		is(t, err, dblock.ErrCapacity)
	}
	unlock(t, p)
	e.idle(t, "s")
	p = lock(t, b, "s", dblock.Permits(4, 4))
	unlock(t, p)
	r := lock(t, b, "s", dblock.Shared())
	_, err := a.Lock(t.Context(), "s", dblock.Permits(1, 3))
	is(t, err, dblock.ErrCapacity)
	unlock(t, r)

	w := lock(t, a, "s") // a waiter sets the capacity, too
	next := locking(context.Background(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	_, err = a.Lock(t.Context(), "s", dblock.Permits(1, 3))
	is(t, err, dblock.ErrCapacity)
	unlock(t, w)
	unlock(t, granted(t, soon, next))
	for _, bad := range []dblock.LockOption{dblock.Permits(0, 1), dblock.Permits(2, 1), dblock.Permits(-1, 3), dblock.Permits(1, 1<<31-1)} {
		_, err := a.Lock(t.Context(), "s", bad)
		is(t, err, dblock.ErrInvalidOption)
	}
	_, err = a.Lock(t.Context(), "s", dblock.Shared(), dblock.Permits(1, 2))
	is(t, err, dblock.ErrInvalidOption)
	_, err = a.Lock(t.Context(), "s", dblock.Shared(), dblock.MinHold(1))
	is(t, err, dblock.ErrInvalidOption)
	e.idle(t, "s")
}

func permitsOfTheDead(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithTTL(shortTTL)), e.client(t, dblock.WithTTL(shortTTL))
	lost := lock(t, a, "s", dblock.Permits(2, 3))
	kept := lock(t, b, "s", dblock.Permits(1, 3))
	next := locking(context.Background(), b, "s", dblock.Permits(2, 3))
	e.queued(t, "s", 1)
	e.end(t, e.text(t, "SELECT session_id FROM dblock_shares WHERE token = ?", lost.Token()))
	l := granted(t, shortTTL+soon, next)
	ended(t, soon, lost, dblock.ErrLost)
	live(t, kept)
	unlock(t, l)
	unlock(t, kept)
	e.idle(t, "s")
}

func permitsAreNotEntered(t *testing.T, e *env) {
	a := e.client(t)
	p := lock(t, a, "s", dblock.Permits(1, 3))
	more, err := a.Lock(p.Context(), "s", dblock.Permits(2, 3))
	if err != nil || more.Token() == p.Token() {
		t.Fatalf("more permits: %v", err)
	}
	refused(t, a, "s", dblock.Permits(1, 3))
	unlock(t, more)
	unlock(t, p)
	all := lock(t, a, "s")
	inner, err := a.Lock(all.Context(), "s", dblock.Permits(1, 3)) // a holder of all has one
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, inner)
	unlock(t, all)
	e.idle(t, "s")
}
