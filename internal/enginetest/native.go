package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/leak"
)

// RunNative runs the suite of engines without tables. sharing says whether the engine has shared
// locks, and locks of transactions; one that has not must say so.
func RunNative(t *testing.T, w Wiring, sharing bool) {
	tests := []test{
		{"when its clients are closed nothing runs", nativeNothingIsLeft},
		{"at most one goroutine of several clients holds a lock", nativeExclusion},
		{"TryLock and a context that ends are ErrNotAcquired, and leave nothing", nativeRefused},
		{"under its own context the same name locks again at once and is counted", nativeReentrant},
		{"Unlock twice says what it said the first time, and a stale handle unlocks nothing", nativeUnlock},
		{"Close ends held locks and calls off its waiters", nativeClose},
		{"a lost connection ends the contexts of all its locks, and the next lock works", nativeLost},
		{"there is no token, no guard, and no option that needs a table", nativeUnsupported},
	}
	if sharing {
		tests = append(tests,
			test{"shared locks go together, and exclude an exclusive one", nativeShared},
			test{"LockTx and Lock exclude each other", nativeTx})
	} else {
		tests = append(tests, test{"Shared and LockTx are ErrUnsupported", nativeUnshared})
	}
	for _, test := range tests {
		t.Run(w.Name+"/"+test.says, func(t *testing.T) { test.run(t, emptyEnv(t, w)) })
	}
}

func nativeNothingIsLeft(t *testing.T, e *env) {
	a := e.app(t, 6)
	before := leak.Running()
	c := e.clientOf(t, a)
	other := e.clientOf(t, a)
	l := lock(t, c, "n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := other.Lock(ctx, "n")
	calledOff(t, err, context.DeadlineExceeded)
	unlock(t, l)
	lock(t, c, "left to Close")
	for _, c := range []Client{c, other} {
		if err := c.Close(brief(t)); err != nil {
			t.Fatal(err)
		}
	}
	a.close()
	if err := leak.Find(before); err != nil {
		t.Error(err)
	}
}

func nativeExclusion(t *testing.T, e *env) {
	var inside, entered atomic.Int32
	var all sync.WaitGroup
	for range 3 {
		c := e.client(t)
		for range 4 {
			all.Go(func() {
				for range 5 {
					err := c.Do(brief(t), "n", func(context.Context, Lock) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d inside", n)
						}
						entered.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if entered.Load() != 60 {
		t.Errorf("%d of 60", entered.Load())
	}
}

func nativeRefused(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	for _, c := range []Client{a, b} {
		refused(t, c, "n")
		ctx, cancel := context.WithCancel(t.Context())
		waiting := locking(ctx, c, "n")
		select {
		case o := <-waiting:
			t.Fatalf("Lock beside another: %v, %v", o.lock, o.err)
		case <-time.After(50 * time.Millisecond):
		}
		cancel()
		is(t, within(t, soon, "the waiter gives up", waiting).err, dblock.ErrNotAcquired, context.Canceled)
	}
	for _, name := range []string{"", "nul\x00", string(make([]byte, 256))} {
		_, err := a.Lock(t.Context(), name)
		is(t, err, dblock.ErrInvalidName)
	}
	unlock(t, l)
	unlock(t, lock(t, b, "n"))
	if err := a.CheckSchema(t.Context()); err != nil {
		t.Errorf("an engine without tables needs no schema: %v", err)
	}
}

func nativeReentrant(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	again, err := a.TryLock(l.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, a, "n") // another owner
	unlock(t, again)
	live(t, l)
	refused(t, b, "n")
	unlock(t, l)
	unlock(t, lock(t, b, "n"))
}

func nativeUnlock(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	if l.Token() != 0 {
		t.Errorf("token %d of a lock that has none", l.Token())
	}
	unlock(t, l)
	ended(t, soon, l, dblock.ErrNotHeld)
	next := lock(t, b, "n")
	unlock(t, l)
	refused(t, a, "n")
	live(t, next)
	unlock(t, next)
}

func nativeClose(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	l := lock(t, a, "n")
	waiting := locking(t.Context(), a, "n")
	select {
	case o := <-waiting:
		t.Fatalf("Lock beside another: %v, %v", o.lock, o.err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := a.Close(brief(t)); err != nil {
		t.Fatal(err)
	}
	ended(t, soon, l, dblock.ErrClosed)
	is(t, within(t, soon, "the waiter is called off", waiting).err, dblock.ErrClosed)
	_, err := a.Lock(t.Context(), "n")
	is(t, err, dblock.ErrClosed)
	unlock(t, lock(t, b, "n"))
}

func nativeLost(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first, second := lock(t, a, "n"), lock(t, a, "m")
	e.kill(t, everything)
	for _, l := range []Lock{first, second} {
		ended(t, soon, l, dblock.ErrLost)
		is(t, l.Unlock(t.Context()), dblock.ErrLost)
	}
	for _, c := range []Client{a, b} {
		unlock(t, lock(t, c, "n"))
	}
}

func nativeUnsupported(t *testing.T, e *env) {
	a := e.app(t, 6)
	c := e.clientOf(t, a)
	for _, option := range []dblock.LockOption{dblock.Owner("h", "t"), dblock.Lease(time.Minute), dblock.Metadata(map[string]string{"k": "v"})} {
		_, err := c.Lock(t.Context(), "n", option)
		is(t, err, dblock.ErrUnsupported)
	}
	l := lock(t, c, "n")
	tx := beginTx(t, a, sql.LevelReadCommitted)
	is(t, l.Guard(t.Context(), tx), dblock.ErrUnsupported)
	is(t, l.UnlockTx(t.Context(), tx), dblock.ErrUnsupported)
	is(t, l.Extend(t.Context(), time.Minute), dblock.ErrUnsupported)
	live(t, l)
	unlock(t, l)
}

func nativeUnshared(t *testing.T, e *env) {
	a := e.app(t, 6)
	c := e.clientOf(t, a)
	_, err := c.Lock(t.Context(), "n", dblock.Shared())
	is(t, err, dblock.ErrUnsupported)
	tx := beginTx(t, a, sql.LevelReadCommitted)
	is(t, c.LockTx(t.Context(), tx, "n"), dblock.ErrUnsupported)
	is(t, c.TryLockTx(t.Context(), tx, "n"), dblock.ErrUnsupported)
}

func nativeShared(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	readers := []Lock{lock(t, a, "n", dblock.Shared()), lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared())}
	refused(t, a, "n")
	refused(t, b, "n")
	_, err := a.TryLock(readers[0].Context(), "n") // a shared lock does not become exclusive
	is(t, err, dblock.ErrDeadlock)
	writer := locking(t.Context(), b, "n")
	eventually(t, patience, "the writer holds back later readers", func() bool {
		l, err := a.TryLock(t.Context(), "n", dblock.Shared())
		if err == nil {
			unlock(t, l)
		}
		return errors.Is(err, dblock.ErrNotAcquired)
	})
	for _, l := range readers {
		live(t, l)
		unlock(t, l)
	}
	w := granted(t, soon, writer)
	refused(t, a, "n", dblock.Shared())
	unlock(t, w)
	unlock(t, lock(t, a, "n", dblock.Shared()))
}

func nativeTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		tx := beginTx(t, a, level)
		lockTx(t, c, tx, name, dblock.Also("also"))
		refused(t, c, name)
		refused(t, other, "also")
		waiting := locking(t.Context(), other, name)
		e.usable(t, tx)
		l := granted(t, soon, waiting)

		tx = beginTx(t, a, level)
		is(t, c.TryLockTx(t.Context(), tx, name), dblock.ErrNotAcquired)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		is(t, c.LockTx(ctx, tx, name, dblock.Shared()), dblock.ErrNotAcquired, context.DeadlineExceeded)
		e.usable(t, tx)
		unlock(t, l)

		first, second := beginTx(t, a, level), beginTx(t, a, level)
		lockTx(t, c, first, name, dblock.Shared())
		lockTx(t, c, second, name, dblock.Shared())
		refused(t, other, name)
		commit(t, first)
		commit(t, second)
		unlock(t, lock(t, other, name))
	})
}
