package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var deadlocks = inPlaces(own{
	{"a cycle of two: the younger gives up, and the error names the cycle",
		func(t *testing.T, e *env) { ring(t, e, 2, 0) }},
	{"a cycle of twenty of mixed kinds: the youngest gives up", func(t *testing.T, e *env) { ring(t, e, 20, 0) }},
	{"LockTx takes part in cycles of leases", func(t *testing.T, e *env) {
		for _, through := range []int{1, 2, 3} {
			ring(t, e, 3, through)
		}
	}},
	{"a goroutine that waits is in the way of what its call is under, and of nothing else that its owner holds",
		beside},
	{"what LockAll has is in the way while it waits for the rest", ringWithinLockAll},
	{"random locking in one order never looks like a deadlock", noFalseDeadlocks},
})

// interval is when the clients of these tests check for deadlocks.
const interval = 200 * time.Millisecond

// ring has n owners hold one name each, and wait for the next one's. So many of the edges, the
// youngest among them, are LockTx. Broken by a LockTx that queues as an owner of its own, which
// holds nothing.
func ring(t *testing.T, e *env, n, through int) {
	e.exec(t, "CREATE TABLE IF NOT EXISTS app (n integer)")
	apps, clients := []App{e.app(t, 10), e.app(t, 10)}, []Client{}
	for _, a := range apps {
		clients = append(clients, e.clientOf(t, a, dblock.WithDeadlockCheck(interval)))
	}
	kinds := [][]dblock.LockOption{nil, {dblock.Shared()}, {dblock.Permits(2, 3)}}
	wants := [][]dblock.LockOption{nil, nil, {dblock.Permits(2, 3)}}
	if n <= 3 {
		kinds, wants = kinds[:1], wants[:1]
	}
	name := func(i int) string { return fmt.Sprintf("n%d", i%n) }
	held, txs, waiters := make([]*dblock.Lock, n), make([]Tx, n), make([]chan error, n)
	for i := range n {
		held[i] = lock(t, clients[i%2], name(i), kinds[i%len(kinds)]...)
	}
	for i := range n {
		ctx, cancel := context.WithCancel(held[i].Context()) // the owner's
		defer cancel()
		if i < n-through {
			waiters[i] = async(func() error {
				l, err := clients[i%2].Lock(ctx, name(i+1), wants[(i+1)%n%len(wants)]...)
				if err == nil {
					err = l.Unlock(context.Background())
				}
				return err
			})
		} else {
			txs[i] = beginTx(t, apps[i%2], e.levels()[0])
			waiters[i] = async(func() error { return clients[i%2].LockTx(ctx, txs[i], name(i+1)) })
		}
		e.queued(t, name(i+1), 1)
	}
	goesOn := func(i int) {
		if txs[i] != nil {
			e.usable(t, txs[i])
		}
		unlock(t, held[i])
	}
	err := within(t, soon, "the youngest gives up", waiters[n-1])
	var d *dblock.DeadlockError
	if !errors.As(err, &d) || len(d.Cycle) != n {
		t.Fatalf("%v: want a cycle of %d", err, n)
	}
	for i := range n {
		says(t, err, dblock.ErrDeadlock, fmt.Sprintf("%q", name(i)))
	}
	for _, w := range waiters[:n-1] {
		stillWaits(t, 0, w)
	}
	goesOn(n - 1)
	for i := n - 2; i >= 0; i-- { // the rest proceed
		require.NoError(t, within(t, soon, "the next goes on", waiters[i]))
		goesOn(i)
	}
	for i := range n {
		e.idle(t, name(i))
	}
}

// beside has one goroutine of an owner hold a name, and another wait for its waiter's. Broken by a
// detector that knows owners alone.
func beside(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithDeadlockCheck(interval)), e.client(t, dblock.WithDeadlockCheck(interval))
	for _, last := range []string{"the owner", "the other"} {
		outer, y := lock(t, a, "outer"), lock(t, b, "y")
		inner, err := a.Lock(outer.Context(), "inner")
		require.NoError(t, err)
		var ahead, back <-chan outcome
		wait := func(who string) {
			if who == "the owner" {
				ahead = locking(outer.Context(), a, "y")
				e.queued(t, "y", 1)
			} else {
				back = locking(y.Context(), b, "inner")
				e.queued(t, "inner", 1)
			}
		}
		for _, who := range []string{"the owner", "the other"} {
			if who != last {
				wait(who)
			}
		}
		wait(last)
		stillWaits(t, 3*interval, ahead) // two checks run in this time
		stillWaits(t, 0, back)
		unlock(t, inner)
		unlock(t, granted(t, soon, back))

		// What its call is under waits for it.
		is(t, within(t, soon, "the other gives up", locking(y.Context(), b, "outer")).err, dblock.ErrDeadlock)
		unlock(t, y)
		unlock(t, granted(t, soon, ahead))
		unlock(t, outer)
	}

	// Likewise further down.
	outer, y := lock(t, a, "outer"), lock(t, b, "y")
	inner, err := a.Lock(outer.Context(), "inner")
	require.NoError(t, err)
	back := locking(y.Context(), b, "inner")
	e.queued(t, "inner", 1)
	ended := make(chan error, 1)
	go func() {
		ended <- a.Do(inner.Context(), "outer", func(ctx context.Context, _ *dblock.Lock) error {
			l, err := a.Lock(ctx, "y")
			if err == nil {
				err = l.Unlock(ctx)
			}
			return err
		})
	}()
	is(t, within(t, soon, "the owner gives up", ended), dblock.ErrDeadlock)
	unlock(t, inner)
	unlock(t, granted(t, soon, back))
	unlock(t, y)
	unlock(t, outer)
}

// Broken by a LockAll whose names are beside each other.
func ringWithinLockAll(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithDeadlockCheck(interval)), e.client(t, dblock.WithDeadlockCheck(interval))
	outer, y := lock(t, a, "outer"), lock(t, b, "y")
	all := make(chan error, 1)
	go func() {
		l, err := a.LockAll(outer.Context(), []string{"v", "w", "y"})
		if err == nil {
			err = l.Unlock(context.Background())
		}
		all <- err
	}()
	e.queued(t, "y", 1)
	is(t, within(t, soon, "the other gives up", locking(y.Context(), b, "v")).err, dblock.ErrDeadlock)
	unlock(t, y)
	require.NoError(t, within(t, soon, "LockAll has the rest", all))
	unlock(t, outer)
}

// noFalseDeadlocks takes names of all kinds in one order only, under the owner's context, with very
// frequent checks.
func noFalseDeadlocks(t *testing.T, e *env) {
	clients := []Client{e.client(t, dblock.WithDeadlockCheck(10*time.Millisecond)),
		e.client(t, dblock.WithDeadlockCheck(10*time.Millisecond))}
	kinds := []dblock.LockOption{dblock.Metadata(nil), dblock.Shared()}
	var all sync.WaitGroup
	until := time.Now().Add(2 * time.Second)
	for i := range 8 {
		all.Go(func() {
			for time.Now().Before(until) {
				ctx := t.Context()
				var held []*dblock.Lock
				for n := range 4 {
					if rand.N(2) == 0 {
						continue
					}
					option := kinds[rand.N(2)]
					if n == 3 {
						option = dblock.Permits(1+rand.N(2), 3)
					}
					l, err := clients[i%2].Lock(ctx, fmt.Sprint("n", n), option)
					if err != nil {
						t.Error(err)
						break
					}
					ctx, held = l.Context(), append(held, l)
				}
				for _, l := range held {
					assert.NoError(t, l.Unlock(t.Context()))
				}
			}
		})
	}
	all.Wait()
}
