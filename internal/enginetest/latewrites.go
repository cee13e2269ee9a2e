package enginetest

import (
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
)

// Broken by an Unlock that releases what was guarded as any other lock.
func unlockedBeforeEnd(t *testing.T, e *env) {
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, end := range []func(testing.TB, Tx){commit, rollback} {
			l := lock(t, c, name)
			waiter := locking(t.Context(), other, name)
			e.queued(t, name, 1)
			tx := beginTx(t, a, level)
			is(t, l.Guard(t.Context(), tx), nil)
			released := unlocking(l)
			if e.wiring.Kind != SQLite { // where nobody can write before the transaction ends
				is(t, within(t, soon, "Unlock returns", released), nil)
				ended(t, soon, l, dblock.ErrNotHeld)
				refused(t, other, name)
				refused(t, c, name) // nor does it wait for the transaction
				released <- nil
			}
			stillOpen(t, waiter)
			is(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"), nil)
			end(t, tx)
			is(t, within(t, soon, "Unlock returns", released), nil)
			next := granted(t, soon, waiter)
			rising(t, []int64{l.Token(), next.Token()})
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
		waiter := locking(t.Context(), other, name)
		e.queued(t, name, 1)
		tx := beginTx(t, far, level)
		is(t, l.Guard(t.Context(), tx), nil)
		is(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"), nil)
		before := e.number(t, "SELECT count(*) FROM app")
		proxy.Freeze()
		committed := make(chan error, 1)
		go func() { committed <- tx.commit(t.Context()) }()
		is(t, within(t, soon, "Unlock returns", unlocking(l)), nil)
		stillOpen(t, waiter)
		proxy.Heal()
		next := granted(t, soon, waiter)
		if now := e.number(t, "SELECT count(*) FROM app"); now != before+1 {
			t.Errorf("the next has the lock with %d rows, before the commit there were %d", now, before)
		}
		is(t, within(t, soon, "the commit is answered", committed), nil)
		unlock(t, next)
		e.free(t, name)
	})
}
