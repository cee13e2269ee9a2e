package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// Broken by an Unlock that releases what was guarded as any other lock.
func unlockedBeforeEnd(t *testing.T, e *env) {
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, end := range []func(testing.TB, Tx){commit, rollback} {
			l := lock(t, c, name)
			waiter := e.waiter(t, other, name)
			tx := beginTx(t, a, level)
			is(t, c.Guard(t.Context(), tx, l), nil)
			released := unlocking(l)
			if e.wiring.Kind != SQLite { // where nobody can write before the transaction ends
				is(t, within(t, soon, "Unlock returns", released), nil)
				ended(t, soon, l, dblock.ErrNotHeld)
				refused(t, other, name)
				refused(t, c, name) // nor does it wait for the transaction
				released <- nil
			}
			stillWaits(t, 100*time.Millisecond, waiter)
			is(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"), nil)
			end(t, tx)
			is(t, within(t, soon, "Unlock returns", released), nil)
			next := granted(t, soon, waiter)
			rising(t, l.Token(), next.Token())
			unlock(t, next)
			e.free(t, name)
		}
	})
}

// Broken likewise: the application has given up its transaction, whose COMMIT is on its way.
func commitAfterUnlock(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // nothing is ever on its way
		return
	}
	proxy := dbtest.NewProxy(t, e.db.Addr(t))
	behind := *e
	behind.db = e.db.Through(t, proxy)
	a, far := e.app(t, 5), behind.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		l := lock(t, c, name)
		waiter := e.waiter(t, other, name)
		tx := beginTx(t, far, level)
		is(t, c.Guard(t.Context(), tx, l), nil)
		is(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"), nil)
		before := e.number(t, "SELECT count(*) FROM app")
		proxy.Freeze()
		committed := async(func() error { return tx.commit(t.Context()) })
		is(t, within(t, soon, "Unlock returns", unlocking(l)), nil)
		stillWaits(t, 100*time.Millisecond, waiter)
		proxy.Heal()
		next := granted(t, soon, waiter)
		assert.Equal(t, e.number(t, "SELECT count(*) FROM app"), before+1, "rows beside the next holder")
		is(t, within(t, soon, "the commit is answered", committed), nil)
		unlock(t, next)
		e.free(t, name)
	})
}

// Broken by a ReleaseTx that does not look for guards: the write of the guarded transaction would
// land after the next holder's.
func unlockTxBesideGuard(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for i, end := range []func(testing.TB, Tx){e.commitOne, rollback} {
			for j, options := range [][]dblock.LockOption{nil, {dblock.Shared()}} {
				name := fmt.Sprint(name, i, j)
				l := lock(t, c, name, options...)
				waiter := e.waiter(t, other, name)
				first, tx := beginTx(t, a, level), beginTx(t, a, level)
				is(t, c.Guard(t.Context(), first, l), nil)
				if e.wiring.Kind == SQLite { // where the first transaction has locked everything
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					is(t, c.UnlockTx(ctx, tx, l), context.DeadlineExceeded)
					cancel()
					rollback(t, tx)
				} else {
					if i == 0 && e.wiring.Kind != TiDB { // it guards, too
						is(t, c.Guard(t.Context(), tx, l), nil)
					}
					is(t, c.UnlockTx(brief(t), tx, l), dblock.ErrBusy)
					e.usable(t, tx)
				}
				again, err := c.TryLock(l.Context(), name, options...) // it is held as before
				is(t, err, nil)
				unlock(t, again)
				end(t, first)
				stillWaits(t, 100*time.Millisecond, waiter)
				tx = beginTx(t, a, level)
				is(t, c.Guard(t.Context(), tx, l), nil) // its own guard is not in the way
				is(t, c.UnlockTx(brief(t), tx, l), nil)
				e.usable(t, tx)
				unlock(t, l)
				unlock(t, granted(t, soon, waiter))
				e.idle(t, name)
			}
		}
	})
}

// Broken by a guard that is looked for in the snapshot alone.
func unlockTxOlderThanGuard(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where the second transaction waits for the first
		return
	}
	a := e.app(t, 6)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for kind, units := range map[string]int{"whole": 0, "share": 1} {
			held, _ := e.takeFor(t, a, name+kind, takeover{units: units})
			tx := beginTx(t, a, level)
			snapshot(t, tx)
			first := guardIn(t, a, e.readCommitted(), held)
			if err := a.release(brief(t), tx, held); !errors.Is(err, driver.ErrGuarded) &&
				!errors.Is(err, driver.ErrRetry) {
				t.Errorf("%s: released beside a guard: %v", kind, err)
			}
			rollback(t, tx)
			rollback(t, first)
		}
	})
}

// Broken by a short way that does not ask for guards.
func releaseOfGuarded(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where nobody can write meanwhile
		return
	}
	a := e.app(t, 6)
	c := e.clientOf(t, a) // with which the engine has its short ways
	e.exec(t, "CREATE TABLE app (n integer)")
	for name, contended := range map[string]bool{"idle": false, "contended": true} {
		held, _ := e.takeFor(t, a, name, takeover{})
		var waiter <-chan outcome
		if contended {
			waiter = e.waiter(t, c, name)
		}
		tx := guardIn(t, a, e.readCommitted(), held)
		release := func() error {
			_, left, err := drivertest.Remove(t.Context(), a.Backend, protocol.Release(held, contended, true))
			if err == nil && !left {
				err = driver.ErrNotHeld
			}
			return err
		}
		is(t, release(), driver.ErrGuarded)
		e.commitOne(t, tx)
		is(t, release(), nil)
		if contended {
			unlock(t, granted(t, soon, waiter))
		}
		e.free(t, name)
	}
}
