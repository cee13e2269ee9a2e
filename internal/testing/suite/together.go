package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var together = inPlaces(own{
	{"LockAll holds all names with one context, and gives all back", allAtOnce},
	{"LockAll that is cancelled holds none", allOrNone},
	{"LockAll with a mode for each name shares some of them", allModes},
	{"LockAll enters what its owner has already", allReentrant},
}, moving{
	{"LockAll that loses a lock while it waits for another begins again", allAgain},
}, flowing{
	{"the context of LockAll ends with the first lock that is lost", allLost},
})

func allAtOnce(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	all, err := a.LockAll(t.Context(), []string{"c", "a", "b", "a"})
	require.NoError(t, err)
	if got := fmt.Sprint(all.Names()); got != "[a b c]" || len(all.Tokens()) != 3 || all.Tokens()["b"] == 0 {
		t.Errorf("%v, %v", got, all.Tokens())
	}
	for _, name := range all.Names() {
		refused(t, b, name)
	}
	is(t, assert.ErrOf(b.TryLockAll(t.Context(), []string{"z", "b"})), dblock.ErrNotAcquired)
	e.free(t, "z")
	next := e.waiter(t, b, "b")
	for range 2 {
		require.NoError(t, all.Unlock(t.Context()))
	}
	is(t, context.Cause(all.Context()), dblock.ErrNotHeld)
	unlock(t, granted(t, soon, next))
	for _, name := range []string{"a", "b", "c"} {
		e.idle(t, name)
	}
	for _, names := range [][]string{nil, {"a", ""}} {
		assert.Error(t, assert.ErrOf(a.LockAll(t.Context(), names)), names, "were locked")
	}
	_, err = a.LockAll(t.Context(), []string{"a"}, dblock.For("b", dblock.Shared()))
	is(t, err, dblock.ErrInvalidOption)
}

func allOrNone(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	held := lock(t, b, "m")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := a.LockAll(ctx, []string{"z", "m", "a"})
		done <- err
	}()
	e.queued(t, "m", 1)
	refused(t, b, "a") // those before it are held meanwhile
	cancel()
	calledOff(t, within(t, soon, "LockAll gives up", done), context.Canceled)
	for _, name := range []string{"a", "z"} {
		e.free(t, name)
	}
	unlock(t, held)
	e.free(t, "m")
}

func allLost(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	all, err := a.LockAll(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	breaks(t, b, "b", 1)
	within(t, soon, "the context ends", all.Context().Done())
	is(t, context.Cause(all.Context()), dblock.ErrLost)
	is(t, all.Unlock(t.Context()), dblock.ErrLost)
	e.free(t, "a")
	e.free(t, "b")
}

// allAgain: the first name's lease is over before the second is free.
func allAgain(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	held := lock(t, b, "b")
	done := make(chan *dblock.Locks, 1)
	go func() {
		all, err := a.LockAll(t.Context(), []string{"a", "b"}, dblock.For("a", dblock.Lease(20*time.Second)))
		assert.NoError(t, err)
		done <- all
	}()
	e.queued(t, "b", 1)
	first := e.number(t, "SELECT token FROM dblock_locks WHERE name = 'a'")
	e.advance(t, 21*time.Second)
	eventually(t, soon, "it has begun again",
		func() bool { return e.number(t, "SELECT token FROM dblock_locks WHERE name = 'a'") > first })
	unlock(t, held)
	all := within(t, soon, "all are held", done)
	if all == nil {
		t.FailNow()
	}
	assert.Equal(t, e.number(t, "SELECT token FROM dblock_locks WHERE name = 'a'"), all.Tokens()["a"], "token")
	is(t, all.Unlock(t.Context()), nil)
	e.free(t, "a")
	e.free(t, "b")
}

func allModes(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	options := []dblock.LocksOption{dblock.For("r", dblock.Shared()), dblock.For("s", dblock.Permits(1, 2))}
	one, err := a.LockAll(t.Context(), []string{"r", "s", "w"}, options...)
	require.NoError(t, err)
	two, err := b.LockAll(t.Context(), []string{"r", "s"}, options...)
	require.NoError(t, err)
	is(t, assert.ErrOf(b.TryLockAll(t.Context(), []string{"r", "s"}, options...)), dblock.ErrNotAcquired)
	refused(t, b, "w")
	for _, l := range []*dblock.Locks{one, two} {
		require.NoError(t, l.Unlock(t.Context()))
	}
	for _, name := range []string{"r", "s", "w"} {
		e.idle(t, name)
	}
}

func allReentrant(t *testing.T, e *env) {
	a := e.client(t)
	b := lock(t, a, "b")
	all, err := a.LockAll(b.Context(), []string{"a", "b", "c"})
	require.NoError(t, err)
	assert.Equal(t, all.Tokens()["b"], b.Token(), "it was locked anew")
	inner, err := a.Lock(all.Context(), "c")
	require.NoError(t, err)
	unlock(t, inner)
	require.NoError(t, all.Unlock(t.Context()))
	live(t, b)
	e.free(t, "a")
	unlock(t, b)
	e.free(t, "b")
}
