package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var deadlocks = inPlaces(own{
	{"a cycle of two: the younger gives up, and the error names the cycle",
		func(t *testing.T, e *env) { ring(t, e, 2) }},
	{"a cycle of three of mixed kinds: the youngest gives up", func(t *testing.T, e *env) { ring(t, e, 3) }},
	{"a cycle of twenty of mixed kinds: the youngest gives up", func(t *testing.T, e *env) { ring(t, e, 20) }},
	{"more permits than there are beside one's own are refused at once", ownPermits},
	{"goroutines of one owner that share a semaphore are no deadlock", fanOut},
	{"a goroutine that waits is in the way of what its call is under, and of nothing else that its owner holds",
		beside},
	{"LockAll takes part in cycles", ringWithLockAll},
	{"what LockAll has is in the way while it waits for the rest", ringWithinLockAll},
	{"LockTx takes part in cycles of leases", ringWithLockTx},
	{"a semaphore with another holder that does not wait is no deadlock", semaphoreThatDrains},
	{"random locking in one order never looks like a deadlock", noFalseDeadlocks},
	{"without the check no waiter gives up", withoutCheck},
})

// interval is when the clients of these tests check for deadlocks.
const interval = 200 * time.Millisecond

// ring has n owners hold one name each, and wait for the next one's.
func ring(t *testing.T, e *env, n int) {
	clients := []Client{e.client(t, dblock.WithDeadlockCheck(interval)),
		e.client(t, dblock.WithDeadlockCheck(interval))}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kinds := [][]dblock.LockOption{nil, {dblock.Shared()}, {dblock.Permits(2, 3)}}
	wants := [][]dblock.LockOption{nil, nil, {dblock.Permits(2, 3)}}
	if n == 2 {
		kinds, wants = kinds[:1], wants[:1]
	}
	name := func(i int) string { return fmt.Sprintf("n%d", i%n) }
	held := make([]*dblock.Lock, n)
	for i := range n {
		held[i] = lock(t, clients[i%2], name(i), kinds[i%n%len(kinds)]...)
	}
	waiters := make([]<-chan outcome, n)
	for i := range n {
		under, stop := context.WithCancel(held[i].Context()) // the owner's
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		waiters[i] = locking(under, clients[i%2], name(i+1), wants[(i+1)%n%len(kinds)]...)
		e.queued(t, name(i+1), 1)
	}
	began := time.Now()
	victim := within(t, soon, "the youngest gives up", waiters[n-1])
	is(t, victim.err, dblock.ErrDeadlock)
	if took := time.Since(began); took > interval+5*time.Second { // more than is promised: other tests are at work
		t.Errorf("it took %v", took)
	}
	var d *dblock.DeadlockError
	if !errors.As(victim.err, &d) || len(d.Cycle) != n {
		t.Fatalf("%v: want a cycle of %d", victim.err, n)
	}
	for i := range n {
		if !strings.Contains(victim.err.Error(), fmt.Sprintf("%q", name(i))) {
			t.Errorf("%v does not name %q", victim.err, name(i))
		}
	}
	for i := range n - 1 {
		if len(waiters[i]) > 0 {
			t.Errorf("%d has stopped waiting too: %v", i, (<-waiters[i]).err)
		}
	}
	unlock(t, held[n-1])
	for i := n - 2; i >= 0; i-- { // the rest proceed
		got := granted(t, soon, waiters[i])
		unlock(t, got)
		unlock(t, held[i])
	}
	for i := range n {
		e.idle(t, name(i))
	}
}

func ownPermits(t *testing.T, e *env) {
	a := e.client(t, dblock.WithDeadlockCheck(interval))
	p := lock(t, a, "s", dblock.Permits(2, 3))
	for _, more := range []dblock.LockOption{dblock.Permits(2, 3), dblock.Metadata(nil)} { // metadata: all of it
		_, err := a.Lock(p.Context(), "s", more)
		is(t, err, dblock.ErrDeadlock)
	}
	unlock(t, p)
	e.idle(t, "s")
}

// fanOut: the goroutines are one owner. One of them waits while the others work.
func fanOut(t *testing.T, e *env) {
	a := e.client(t, dblock.WithDeadlockCheck(20*time.Millisecond))
	outer := lock(t, a, "outer")
	var held []*dblock.Lock
	for range 2 {
		l, err := a.Lock(outer.Context(), "s", dblock.Permits(1, 2))
		require.NoError(t, err)
		held = append(held, l)
	}
	third := locking(outer.Context(), a, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	select {
	case o := <-third:
		t.Fatalf("it gave up: %v", o.err)
	case <-time.After(200 * time.Millisecond): // several checks run meanwhile
	}
	for _, l := range held {
		unlock(t, l)
	}
	unlock(t, granted(t, soon, third))
	unlock(t, outer)
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
		select {
		case o := <-ahead:
			t.Fatalf("the owner gave up: %v", o.err)
		case o := <-back:
			t.Fatalf("the other gave up: %v", o.err)
		case <-time.After(3 * interval): // two checks run in this time
		}
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

func ringWithLockAll(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithDeadlockCheck(interval)), e.client(t, dblock.WithDeadlockCheck(interval))
	x := lock(t, a, "x")
	all, err := b.LockAll(t.Context(), []string{"y", "z"})
	require.NoError(t, err)
	first := locking(all.Context(), b, "x")
	e.queued(t, "x", 1)
	_, err = a.LockAll(x.Context(), []string{"v", "z"})
	is(t, err, dblock.ErrDeadlock)
	e.free(t, "v")
	unlock(t, x)
	unlock(t, granted(t, soon, first))
	require.NoError(t, all.Unlock(t.Context()))
}

// Broken by a LockTx that queues as an owner of its own, which holds nothing.
func ringWithLockTx(t *testing.T, e *env) {
	const n = 3
	e.exec(t, "CREATE TABLE app (n integer)")
	a, b := e.app(t, 10), e.app(t, 10)
	apps := []App{a, b}
	clients := []Client{e.clientOf(t, a, dblock.WithDeadlockCheck(interval)),
		e.clientOf(t, b, dblock.WithDeadlockCheck(interval))}
	name := func(i int) string { return fmt.Sprintf("n%d", i%n) }
	for _, through := range []int{1, 2, n} { // so many of the edges are LockTx, the youngest among them
		held, txs, waiters := make([]*dblock.Lock, n), make([]Tx, n), make([]chan error, n)
		for i := range n {
			held[i] = lock(t, clients[i%2], name(i))
		}
		for i := range n {
			waiters[i] = make(chan error, 1)
			ctx, cancel := context.WithTimeout(held[i].Context(), patience)
			defer cancel()
			if i < n-through {
				go func() {
					l, err := clients[i%2].Lock(ctx, name(i+1))
					if err == nil {
						err = l.Unlock(context.Background())
					}
					waiters[i] <- err
				}()
			} else {
				txs[i] = beginTx(t, apps[i%2], e.levels()[0])
				go func() { waiters[i] <- clients[i%2].LockTx(ctx, txs[i], name(i+1)) }()
			}
			e.queued(t, name(i+1), 1)
		}
		err := within(t, soon, "the youngest gives up", waiters[n-1])
		is(t, err, dblock.ErrDeadlock)
		var d *dblock.DeadlockError
		if !errors.As(err, &d) || len(d.Cycle) != n {
			t.Fatalf("%v: want a cycle of %d", err, n)
		}
		e.usable(t, txs[n-1])
		unlock(t, held[n-1])
		for i := n - 2; i >= 0; i-- { // the rest proceed
			require.NoError(t, within(t, soon, "the next goes on", waiters[i]))
			if txs[i] != nil {
				e.usable(t, txs[i])
			}
			unlock(t, held[i])
		}
		for i := range n {
			e.free(t, name(i))
		}
	}
}

func semaphoreThatDrains(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithDeadlockCheck(interval)), e.client(t, dblock.WithDeadlockCheck(interval))
	p1, p2 := lock(t, a, "s", dblock.Permits(1, 2)), lock(t, a, "s", dblock.Permits(1, 2))
	y := lock(t, b, "y")
	first := locking(p1.Context(), a, "y")
	e.queued(t, "y", 1)
	second := locking(y.Context(), b, "s", dblock.Permits(1, 2))
	e.queued(t, "s", 1)
	select {
	case o := <-second:
		t.Fatalf("it gave up: %v", o.err)
	case <-time.After(3 * interval): // two checks run in this time
	}
	unlock(t, p2)
	unlock(t, granted(t, soon, second))
	unlock(t, y)
	unlock(t, granted(t, soon, first))
	unlock(t, p1)
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

func withoutCheck(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithDeadlockCheck(0)), e.client(t, dblock.WithDeadlockCheck(0))
	x, y := lock(t, a, "x"), lock(t, b, "y")
	ctx, cancel := context.WithTimeout(y.Context(), 3*interval)
	defer cancel()
	first := locking(x.Context(), a, "y")
	e.queued(t, "y", 1)
	_, err := b.Lock(ctx, "x")
	is(t, err, context.DeadlineExceeded)
	if errors.Is(err, dblock.ErrDeadlock) {
		t.Error(err)
	}
	unlock(t, y)
	unlock(t, granted(t, soon, first))
	unlock(t, x)
}
