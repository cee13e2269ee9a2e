package suite

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var permits = inPlaces(own{
	{"as many permits are held as there are, and no more", permitsHeld},
	{"a large request at the head is not overtaken by small ones behind it", noBarging},
	{"permits come back in any order", anyOrder},
	{"a semaphore grows when the last that states the old size has left", growing},
	{"a semaphore shrinks with the first that states the new size", shrinking},
	{"who states less waits until so few are used, and who states more is not held back by who waits behind",
		sizesInLine},
	{"a semaphore that grows admits more in the same commit in which the last of the old size leaves", growsAtOnce},
	{"a semaphore grows with the commit of UnlockTx, too", growsInTx},
	{"readers and permits do not share a name", readersOrPermits},
	{"under a permit's context Permits takes more, and Lock without Permits takes all", permitsAreNotEntered},
}, moving{
	{"permits with a Lease come back by themselves, and no more are held at once than there are", permitsRunOut},
}, flowing{
	{"permits come back when their holder dies", permitsOfTheDead},
})

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
	var held []*dblock.Lock
	for range 5 {
		held = append(held, lock(t, a, "s", dblock.Permits(1, 5)))
	}
	for released, i := range []int{2, 0, 4, 1, 3} {
		refused(t, a, "s", dblock.Permits(released+1, 5))
		unlock(t, held[i])
	}
	e.idle(t, "s")
}

func growing(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	old := []*dblock.Lock{lock(t, a, "s", dblock.Permits(1, 2)), lock(t, a, "s", dblock.Permits(1, 2))}
	refused(t, b, "s", dblock.Permits(1, 4))
	next := locking(context.Background(), b, "s", dblock.Permits(1, 4))
	e.queued(t, "s", 1)
	unlock(t, old[0])
	first := granted(t, soon, next)
	refused(t, a, "s", dblock.Permits(1, 4)) // one holder still states 2
	unlock(t, old[1])
	rest := []*dblock.Lock{lock(t, a, "s", dblock.Permits(2, 4)), lock(t, b, "s", dblock.Permits(1, 4))}
	refused(t, a, "s", dblock.Permits(1, 4))
	for _, l := range append(rest, first) {
		unlock(t, l)
	}
	e.idle(t, "s")
}

func shrinking(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	old := []*dblock.Lock{lock(t, a, "s", dblock.Permits(1, 4)), lock(t, b, "s", dblock.Permits(2, 4))}
	refused(t, a, "s", dblock.Permits(1, 2))
	next := locking(context.Background(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	unlock(t, old[1])
	first := granted(t, soon, next)
	refused(t, a, "s", dblock.Permits(1, 4))
	info, err := a.Inspect(t.Context(), "s")
	if err != nil || info.Capacity != 2 {
		t.Errorf("the semaphore has %d permits: %v", info.Capacity, err)
	}
	unlock(t, old[0])
	unlock(t, lock(t, a, "s", dblock.Permits(1, 2)))
	unlock(t, first)
	e.idle(t, "s")
}

func sizesInLine(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	old := []*dblock.Lock{lock(t, a, "s", dblock.Permits(1, 4)), lock(t, a, "s", dblock.Permits(1, 4))}
	less := locking(context.Background(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	more := locking(context.Background(), a, "s", dblock.Permits(1, 4)) // there is room, and a queue
	e.queued(t, "s", 2)
	unlock(t, old[0])
	first := granted(t, soon, less)
	unlock(t, old[1])
	second := granted(t, soon, more)
	all := locking(context.Background(), a, "s", dblock.Permits(6, 6))
	e.queued(t, "s", 1)
	behind := locking(context.Background(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 2)
	unlock(t, first)
	unlock(t, second)
	third := granted(t, soon, all)
	if len(behind) > 0 {
		t.Fatal("more is held than a holder states")
	}
	unlock(t, third)
	unlock(t, granted(t, soon, behind))
	e.idle(t, "s")
}

func growsAtOnce(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	old := lock(t, a, "s", dblock.Permits(1, 1))
	var line []<-chan outcome
	for i := range 3 {
		line = append(line, locking(context.Background(), b, "s", dblock.Permits(1, 3)))
		e.queued(t, "s", i+1)
	}
	unlock(t, old)
	for _, next := range line {
		defer unlock(t, granted(t, soon, next))
	}
	refused(t, a, "s", dblock.Permits(1, 3))
}

func growsInTx(t *testing.T, e *env) {
	a := e.app(t, 5)
	b, c := e.clientOf(t, a), e.client(t)
	unlockTx := func(l *dblock.Lock) {
		t.Helper()
		tx := beginTx(t, a, e.levels()[0])
		is(t, b.UnlockTx(t.Context(), tx, l), nil)
		commit(t, tx)
	}
	less, more := lock(t, b, "s", dblock.Permits(1, 2)), lock(t, c, "s", dblock.Permits(1, 4))
	unlockTx(less)
	rest, err := c.TryLock(t.Context(), "s", dblock.Permits(2, 4)) // nobody waits
	require.NoError(t, err)
	unlock(t, rest)
	less = lock(t, b, "s", dblock.Permits(1, 2))
	next := locking(context.Background(), c, "s", dblock.Permits(3, 4))
	e.queued(t, "s", 1)
	unlockTx(less)
	rest = granted(t, patience, next)
	unlock(t, rest)
	unlock(t, more)
	e.idle(t, "s")
}

func readersOrPermits(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	p := lock(t, a, "s", dblock.Permits(1, 3))
	_, err := b.Lock(t.Context(), "s", dblock.Shared())
	is(t, err, dblock.ErrCapacity)
	_, err = b.TryLock(t.Context(), "s", dblock.Shared())
	is(t, err, dblock.ErrCapacity)
	unlock(t, p)
	e.idle(t, "s")
	r := lock(t, b, "s", dblock.Shared())
	_, err = a.Lock(t.Context(), "s", dblock.Permits(1, 3))
	is(t, err, dblock.ErrCapacity)
	unlock(t, r)

	w := lock(t, a, "s") // those who wait count, too
	next := locking(context.Background(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	_, err = a.Lock(t.Context(), "s", dblock.Shared())
	is(t, err, dblock.ErrCapacity)
	unlock(t, w)
	unlock(t, granted(t, soon, next))
	for _, bad := range []dblock.LockOption{dblock.Permits(0, 1), dblock.Permits(2, 1), dblock.Permits(-1, 3),
		dblock.Permits(1, 1<<31-1)} {
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
	a, b := e.client(t), e.client(t)
	lost := lock(t, a, "s", dblock.Permits(2, 3))
	kept := lock(t, b, "s", dblock.Permits(1, 3))
	next := locking(context.Background(), b, "s", dblock.Permits(2, 3))
	e.queued(t, "s", 1)
	e.end(t, e.text(t, "SELECT session_id FROM dblock_shares WHERE token = ?", lost.Token()))
	l := granted(t, soon, next)
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
	require.NoError(t, err)
	unlock(t, inner)
	unlock(t, all)
	e.idle(t, "s")
}

func permitsRunOut(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t)}
	const lease = 20 * time.Second
	for range 3 {
		var held []*dblock.Lock
		for i := range 4 {
			held = append(held, lock(t, clients[i%2], "s", dblock.Permits(1, 4), dblock.Lease(lease)))
		}
		e.advance(t, lease/2)
		for _, c := range clients {
			refused(t, c, "s", dblock.Permits(1, 4), dblock.Lease(lease))
		}
		e.advance(t, lease)
		for _, l := range held {
			ended(t, soon, l, dblock.ErrLost)
		}
	}
}
