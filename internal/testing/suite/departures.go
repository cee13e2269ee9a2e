package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// Broken by taking every end after UnlockTx for its commit.
func lostAfterRollback(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	l := lock(t, c, "n")
	tx := beginTx(t, a, e.levels()[0])
	require.NoError(t, c.UnlockTx(t.Context(), tx, l))
	rollback(t, tx)
	e.end(t, e.session(t, "n"))
	tx = beginTx(t, a, e.levels()[0])
	// As after the commit, unless the client knows of its session first.
	if err := c.Guard(t.Context(), tx, l); !errors.Is(err, dblock.ErrNotHeld) && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("Guard: %v", err)
	}
	rollback(t, tx)
	ended(t, soon, l, dblock.ErrLost)
	is(t, l.Unlock(t.Context()), dblock.ErrLost)
}

// Broken by a Guard that does not reset what UnlockTx has set.
func lostAfterGuard(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	l := lock(t, c, "n")
	for range 2 {
		tx := beginTx(t, a, e.levels()[0])
		require.NoError(t, c.UnlockTx(t.Context(), tx, l))
		rollback(t, tx)
	}
	tx := beginTx(t, a, e.levels()[0])
	require.NoError(t, c.Guard(t.Context(), tx, l))
	rollback(t, tx)
	breaks(t, e.client(t), "n", 1)
	ended(t, soon, l, dblock.ErrLost)
	is(t, l.Unlock(t.Context()), dblock.ErrLost)
}

// Broken by a Guard that resets what UnlockTx has set without the name's row: it sees the lock held
// before the commit.
func guardBeforeCommit(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a, c := e.appClient(t, 5)
	l := lock(t, c, "n")
	tx := beginTx(t, a, e.levels()[0])
	require.NoError(t, c.Guard(t.Context(), tx, l))
	rollback(t, tx)
	tx = beginTx(t, a, e.levels()[0])
	require.NoError(t, c.UnlockTx(t.Context(), tx, l))
	assert.Error(t, c.Guard(brief(t), tx, l), "guarded what the same transaction has released")
	if e.wiring.Kind != SQLite { // where a second transaction cannot write
		other := beginTx(t, a, e.levels()[0])
		assert.Error(t, c.Guard(brief(t), other, l), "guarded what another transaction is about to release")
		rollback(t, other)
	}
	e.usable(t, tx)
	unlock(t, l)
	ended(t, soon, l, dblock.ErrNotHeld)
}

// delayed is a transaction whose UnlockTx is in flight from sent until a gate is opened.
type delayed struct {
	driver.Tx
	sent chan<- struct{}
	gate <-chan struct{}
}

func (d delayed) Release(
	ctx context.Context, h protocol.Held, from protocol.Detachment, onSideConn driver.OnSideConn,
) error {
	d.sent <- struct{}{}
	<-d.gate
	return d.Tx.Release(ctx, h, from, onSideConn)
}

// Broken by a lock that counts as released before its UnlockTx has succeeded: its context would be
// live beside the next holder's, and Unlock and the observer would be told of a release.
func takenDuringUnlockTx(t *testing.T, e *env) {
	other := e.client(t)
	owner := dblock.Owner("pod", "1")
	for how, taken := range map[string]struct {
		options []dblock.LockOption
		take    func(name string)
	}{
		"Break":          {nil, func(name string) { breaks(t, other, name, 1) }},
		"the same Owner": {[]dblock.LockOption{owner}, func(name string) { lock(t, other, name, owner) }},
	} {
		t.Run(how, func(t *testing.T) {
			sent, gate := make(chan struct{}), make(chan struct{})
			a := e.app(t, 5)
			in := a.In
			a.In = func(tx Tx) driver.Tx { return delayed{in(tx), sent, gate} }
			ends := make(chan error, 2)
			c := e.clientOf(t, a,
				dblock.WithObserver(observe.Observer{HoldEnd: func(h observe.HoldResult) { ends <- h.Err }}))
			l := lock(t, c, how, taken.options...)
			tx := beginTx(t, a, e.readCommitted())
			unlocked := async(func() error { return c.UnlockTx(t.Context(), tx, l) })
			within(t, patience, "UnlockTx is in flight", sent)
			taken.take(how)
			ended(t, soon, l, dblock.ErrLost)
			close(gate)
			is(t, within(t, patience, "UnlockTx is answered", unlocked), dblock.ErrLost)
			rollback(t, tx)
			is(t, l.Unlock(t.Context()), dblock.ErrLost)
			is(t, within(t, patience, "the observer is told", ends), dblock.ErrLost)
		})
	}
}

// Broken by ending the context of a lock when its client hears of the release, while Commit reads
// the answer.
func committedInDo(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	const goroutines = 4
	a, c := e.appClient(t, goroutines+5)
	var all sync.WaitGroup
	var committed atomic.Int64
	for range goroutines {
		all.Go(func() {
			for range 10 {
				err := c.Do(t.Context(), "n", func(ctx context.Context, l *dblock.Lock) error {
					return e.inTx(ctx, t, a, c, l, &committed)
				})
				is(t, err, nil)
			}
		})
	}
	all.Wait()
	assert.Equal(t, e.number(t, "SELECT count(*) FROM app"), committed.Load(), "rows of transactions that say so")
}

// inTx writes and releases in one transaction, and counts those that were committed.
func (e *env) inTx(ctx context.Context, t *testing.T, a App, c Client, l *dblock.Lock, committed *atomic.Int64) error {
	tx, err := a.begin(ctx, e.readCommitted())
	if err != nil {
		return err
	}
	defer func() { _ = tx.rollback() }()
	if err := c.Guard(ctx, tx, l); errors.Is(err, driver.ErrRetry) {
		return nil
	} else if err != nil {
		return err
	}
	if err := tx.exec(ctx, "INSERT INTO app (n) VALUES (1)"); err != nil {
		return err
	}
	if err := c.UnlockTx(ctx, tx, l); err != nil {
		return err
	}
	if err := tx.commit(ctx); err != nil {
		t.Errorf("the commit of a lock that is held says %v", err)
		return nil
	}
	committed.Add(1)
	return nil
}

// Broken likewise, and by a context that nothing ends any more.
func departedContext(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 5)
	ends := make(chan error, 2)
	c := e.clientOf(t, a, dblock.WithEvents(),
		dblock.WithObserver(observe.Observer{HoldEnd: func(h observe.HoldResult) { ends <- h.Err }}))
	for i, unlocked := range []bool{true, false} {
		l := lock(t, c, "n")
		tx := beginTx(t, a, e.levels()[0])
		is(t, c.UnlockTx(t.Context(), tx, l), nil)
		commit(t, tx)
		e.advanceUntil(t, longTTL, "the client knows that it is released", func() bool { return len(ends) > 0 })
		is(t, <-ends, nil)
		live(t, l)
		if until := l.Until(); !until.IsZero() {
			t.Errorf("it is held until %v", until)
		}
		e.told(t, c, "n", "released", i+1)
		if unlocked {
			unlock(t, l)
		} else {
			e.advance(t, longTTL+time.Second)
		}
		ended(t, soon, l, dblock.ErrNotHeld)
		unlock(t, l)
	}
	l := lock(t, c, "at once")
	tx := beginTx(t, a, e.levels()[0])
	is(t, c.UnlockTx(t.Context(), tx, l), nil)
	commit(t, tx)
	unlock(t, l)
	e.told(t, c, "at once", "released", 1)
	e.told(t, c, "n", "released", 2)
}
