package suite

import (
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var permits = inPlaces(own{
	{"a semaphore grows with the commit of UnlockTx, too", growsInTx},
	{"readers and permits do not share a name", readersOrPermits},
	{"under a permit's context Permits takes more, and what can never be granted is refused at once",
		permitsAreNotEntered},
})

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
	next := e.waiter(t, c, "s", dblock.Permits(3, 4))
	unlockTx(less)
	rest = granted(t, patience, next)
	unlock(t, rest)
	unlock(t, more)
	e.idle(t, "s")
}

func readersOrPermits(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	p := lock(t, a, "s", dblock.Permits(1, 3))
	is(t, assert.ErrOf(b.Lock(t.Context(), "s", dblock.Shared())), dblock.ErrCapacity)
	is(t, assert.ErrOf(b.TryLock(t.Context(), "s", dblock.Shared())), dblock.ErrCapacity)
	unlock(t, p)
	e.idle(t, "s")
	r := lock(t, b, "s", dblock.Shared())
	is(t, assert.ErrOf(a.Lock(t.Context(), "s", dblock.Permits(1, 3))), dblock.ErrCapacity)
	unlock(t, r)
	for _, bad := range []dblock.LockOption{dblock.Permits(0, 1), dblock.Permits(2, 1), dblock.Permits(-1, 3),
		dblock.Permits(1, 1<<31-1)} {
		is(t, assert.ErrOf(a.Lock(t.Context(), "s", bad)), dblock.ErrInvalidOption)
	}
	is(t, assert.ErrOf(a.Lock(t.Context(), "s", dblock.Shared(), dblock.Permits(1, 2))), dblock.ErrInvalidOption)
	is(t, assert.ErrOf(a.Lock(t.Context(), "s", dblock.Shared(), dblock.MinHold(1))), dblock.ErrInvalidOption)
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
	for _, option := range []dblock.LockOption{dblock.Permits(3, 3), dblock.Metadata(nil)} { // metadata: all of it
		is(t, assert.ErrOf(a.Lock(p.Context(), "s", option)), dblock.ErrDeadlock)
	}
	unlock(t, p)
	all := lock(t, a, "s")
	inner, err := a.Lock(all.Context(), "s", dblock.Permits(1, 3)) // a holder of all has one
	require.NoError(t, err)
	unlock(t, inner)
	unlock(t, all)
	e.idle(t, "s")
}
