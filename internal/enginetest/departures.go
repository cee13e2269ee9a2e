package enginetest

import (
	"testing"

	"github.com/dblock-go/dblock"
)

// Broken by taking every end after UnlockTx for its commit.
func lostAfterRollback(t *testing.T, e *env) {
	a := e.app(t, 5)
	c := e.clientOf(t, a)
	l := lock(t, c, "n")
	tx := beginTx(t, a, e.levels()[0])
	if err := l.UnlockTx(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	e.end(t, e.session(t, "n"))
	tx = beginTx(t, a, e.levels()[0])
	is(t, l.Guard(t.Context(), tx), dblock.ErrLost)
	rollback(t, tx)
	ended(t, soon, l, dblock.ErrLost)
	is(t, l.Unlock(t.Context()), dblock.ErrLost)
}

// Broken by a Guard that does not reset what UnlockTx has set.
func lostAfterGuard(t *testing.T, e *env) {
	a := e.app(t, 5)
	c := e.clientOf(t, a)
	l := lock(t, c, "n")
	for range 2 {
		tx := beginTx(t, a, e.levels()[0])
		if err := l.UnlockTx(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		rollback(t, tx)
	}
	tx := beginTx(t, a, e.levels()[0])
	if err := l.Guard(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	if n, err := e.client(t).Break(t.Context(), "n", "the test wants it"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ended(t, soon, l, dblock.ErrLost)
	is(t, l.Unlock(t.Context()), dblock.ErrLost)
}

// Broken by a Guard that resets what UnlockTx has set without the name's row: it sees the lock held
// before the commit.
func guardBeforeCommit(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 5)
	c := e.clientOf(t, a)
	l := lock(t, c, "n")
	tx := beginTx(t, a, e.levels()[0])
	if err := l.Guard(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	tx = beginTx(t, a, e.levels()[0])
	if err := l.UnlockTx(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if err := l.Guard(brief(t), tx); err == nil {
		t.Error("guarded what the same transaction has released")
	}
	if e.wiring.Kind != SQLite { // where a second transaction cannot write
		other := beginTx(t, a, e.levels()[0])
		if err := l.Guard(brief(t), other); err == nil {
			t.Error("guarded what another transaction is about to release")
		}
		rollback(t, other)
	}
	e.usable(t, tx)
	ended(t, soon, l, dblock.ErrNotHeld)
	unlock(t, l)
}
