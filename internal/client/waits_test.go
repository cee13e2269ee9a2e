package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// slow is a database, and a transaction of the application's, that answer nothing while its gate is
// shut: once.
type slow struct {
	driver.Tx
	shut atomic.Bool
	gate chan struct{}
}

func newSlow() *slow { return &slow{gate: make(chan struct{})} }

func (s *slow) pass(ctx context.Context) error {
	if !s.shut.Load() {
		return nil
	}
	select {
	case <-s.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) hook(ctx context.Context, c *fakedb.Call) error {
	if !c.Beats() {
		if err := s.pass(ctx); err != nil {
			return err
		}
	}
	return c.Do(ctx)
}

func (s *slow) Exclusive() bool { return false }

func (s *slow) Database(context.Context) (string, error) { return "", nil }

func (s *slow) MakeGuard(ctx context.Context, _ protocol.Held, _ driver.OnSideConn) error {
	return s.pass(ctx)
}

func (s *slow) Guard(ctx context.Context, _ protocol.Held, _ driver.OnSideConn) error {
	return s.pass(ctx)
}

func (s *slow) Release(ctx context.Context, _ protocol.Held, _ protocol.Detachment, _ driver.OnSideConn) error {
	return s.pass(ctx)
}

// waiting is a lock among others, with what may be called for it.
type waiting struct {
	*slow
	c    *Client
	lock *Lock
	all  *Locks // the same lock with another
}

// need is what a call needs a lock to be.
type need int

const (
	nothing  need = iota // it may wait although the lock has ended
	notEnded             // once the lock has ended, it says so at once
	relied               // likewise after UnlockTx
)

// method is a call that may wait for the database, for a transaction, or for another call.
type method struct {
	name   string
	lock   func(w *Want) // the options of the lock that it is good for; nil: none
	before func(ctx context.Context, w *waiting) error
	call   func(ctx context.Context, w *waiting) error
	needs  need
}

func unlockTx(ctx context.Context, w *waiting) error { return second(w.c.UnlockTx(ctx, w, w.lock)) }

func second(_ string, err error) error { return err }

// of returns a call that only the lock is needed for.
func of(f func(l *Lock, ctx context.Context) error) func(ctx context.Context, w *waiting) error {
	return func(ctx context.Context, w *waiting) error { return f(w.lock, ctx) }
}

func unlockAll(ctx context.Context, w *waiting) error { return errors.Join(w.all.Unlock(ctx)...) }

var methods = []method{
	{name: "Unlock", call: of((*Lock).Unlock)},
	{name: "Unlock after UnlockTx", before: unlockTx, call: of((*Lock).Unlock)},
	{name: "Unlock of Locks", call: unlockAll},
	{name: "Unlock of Locks after UnlockTx", before: unlockTx, call: unlockAll},
	{name: "Downgrade", needs: relied, call: of((*Lock).Downgrade)},
	{name: "TryUpgrade", needs: relied, lock: func(w *Want) { w.Units, w.Of = 1, protocol.Readers },
		call: of((*Lock).TryUpgrade)},
	{name: "Confirm", needs: notEnded, call: of((*Lock).Confirm)},
	{name: "Extend", needs: relied, lock: func(w *Want) { w.Lease = time.Hour },
		call: func(ctx context.Context, w *waiting) error { return w.lock.Extend(ctx, 2*time.Hour) }},
	{name: "Detach", needs: relied, call: func(ctx context.Context, w *waiting) error {
		return w.lock.Detach(ctx, time.Hour)
	}},
	{name: "Raise", needs: relied, call: func(ctx context.Context, w *waiting) error {
		_, err := w.lock.Raise(ctx, w.lock.Token()+1)
		return err
	}},
	{name: "Record", needs: relied, call: func(ctx context.Context, w *waiting) error {
		return w.lock.Record(ctx, "test", "")
	}},
	{name: "Guard", needs: notEnded, call: func(ctx context.Context, w *waiting) error {
		return second(w.c.Guard(ctx, w, w.lock))
	}},
	{name: "UnlockTx", needs: notEnded, call: unlockTx},
	{name: "Lock under the lock", call: func(ctx context.Context, w *waiting) error {
		return lockUnder(ctx, w, true)
	}},
	{name: "TryLock under the lock", call: func(ctx context.Context, w *waiting) error {
		return lockUnder(ctx, w, false)
	}},
	{name: "LockAll under the lock", call: func(ctx context.Context, w *waiting) error {
		ctx = w.lock.claim.Under(ctx, w.c.owners)
		all, _, err := w.c.AcquireAll(ctx, []Want{want("a"), want("b")}, true)
		if err == nil {
			err = errors.Join(all.Unlock(ctx)...)
		}
		return err
	}},
}

func lockUnder(ctx context.Context, w *waiting, wait bool) error {
	ctx = w.lock.claim.Under(ctx, w.c.owners)
	l, err := w.c.Acquire(ctx, new(want("a")), wait)
	if err == nil {
		err = l.Unlock(ctx)
	}
	return err
}

// Broken by a mutex that a call has while its statement is in flight, and for which another call
// waits past its own context, or at all where the lock has ended: the first may wait for a
// transaction that the second is called in.
func TestNoCallWaitsForAnotherPastItsContext(t *testing.T) {
	const patience = time.Second
	for _, first := range methods {
		for _, next := range methods {
			t.Run(first.name+", "+next.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { beside(t, first, next, patience) })
			})
		}
	}
}

func beside(t *testing.T, first, next method, patience time.Duration) {
	w, p := &waiting{slow: newSlow()}, newPaper()
	w.c = newPaperClient(t, fakedb.Hooked(p, w.hook), nil)
	wants := []Want{want("a"), want("b")}
	if first.lock != nil {
		first.lock(&wants[0])
	} else if next.lock != nil {
		next.lock(&wants[0])
	}
	var err error
	if detach := "Detach"; first.name == detach || next.name == detach { // it refuses a lock of LockAll
		w.lock, err = w.c.Acquire(t.Context(), &wants[0], true)
		w.all = &Locks{client: w.c, locks: []*Lock{w.lock}, cancel: func(error) {}}
	} else if w.all, _, err = w.c.AcquireAll(t.Context(), wants, true); err == nil {
		w.lock = w.all.All()[0]
	}
	if err == nil && first.before != nil {
		err = first.before(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	w.shut.Store(true)
	done := make(chan struct{})
	go func() {
		_ = first.call(t.Context(), w)
		close(done)
	}()
	synctest.Wait()
	answered := w.lock.Context().Err() != nil && next.needs >= notEnded ||
		w.c.ledger.StateOf(w.lock.claim) == ledger.Pledged && next.needs == relied
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err = next.call(ctx, w)
	switch took := time.Since(began); {
	case took > patience:
		t.Errorf("it waits for %v: %v", took, err)
	case answered && (took > 0 || !errors.Is(err, driver.ErrNotHeld)):
		t.Errorf("the lock was given up, and it waits for %v: %v", took, err)
	}
	close(w.gate)
	<-done
	for _, l := range append(w.all.All(), w.lock) {
		if l.Context().Err() == nil { // else the client releases it, whatever Unlock has said
			_ = l.Unlock(t.Context())
		}
	}
	synctest.Wait()
	for _, name := range []string{"a", "b"} {
		if row, _ := p.Locks.Row(name); row.Session == w.lock.claim.Grant.In.ID {
			t.Errorf("%s is held still", name)
		}
	}
}

// Broken by a wait for another call that goes on after Unlock.
func TestACallThatWaitsForAnotherEndsWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		c := newPaperClient(t, fakedb.Hooked(newPaper(), s.hook), nil)
		l := acquire(t, t.Context(), c, "n")
		s.shut.Store(true)
		downgraded, recorded, unlocked := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { downgraded <- l.Downgrade(t.Context()) }()
		synctest.Wait()
		go func() { recorded <- l.Record(t.Context(), "test", "") }()
		synctest.Wait()
		go func() { unlocked <- l.Unlock(t.Context()) }()
		began := time.Now()
		if err := <-recorded; !errors.Is(err, driver.ErrNotHeld) || time.Since(began) > 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(s.gate)
		assert.ErrorIs(t, <-downgraded, driver.ErrNotHeld)
		assert.NoError(t, <-unlocked)
	})
}

// Broken by an UnlockTx or a Guard that goes on for as long as its context allows.
func TestCloseEndsWhatWaitsInATransaction(t *testing.T) {
	for what, call := range map[string]func(ctx context.Context, c *Client, s *slow, l *Lock) error{
		"UnlockTx": func(ctx context.Context, c *Client, s *slow, l *Lock) error {
			return second(c.UnlockTx(ctx, s, l))
		},
		"Guard": func(ctx context.Context, c *Client, s *slow, l *Lock) error { return second(c.Guard(ctx, s, l)) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := newPaperClient(t, newPaper(), nil), newSlow()
				l := acquire(t, t.Context(), c, "n")
				s.shut.Store(true)
				waits := make(chan error, 1)
				go func() { waits <- call(t.Context(), c, s, l) }()
				synctest.Wait()
				began := time.Now()
				assert.NoError(t, c.Close(t.Context()))
				assert.ErrorIs(t, <-waits, ErrClosed)
				if took := time.Since(began); took > time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}
