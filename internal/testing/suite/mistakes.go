package suite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var mistakes = inPlaces(own{
	{"a transaction that has ended is told as such, and the lock stays as it was", endedTx},
	{"a transaction that is read-only is told as such, and the lock stays as it was", readOnlyTx},
	{"a transaction with open rows is told to close them, and the lock stays as it was", openRows},
	{"Guard and UnlockTx refuse the lock of another client, and name it", foreignLock},
	{"Guard and UnlockTx of several locks name the one that was lost, and a rollback undoes the rest", severalInTx},
})

// inTx are the calls for locks in a transaction.
func (c Client) inTx() map[string]func(ctx context.Context, tx Tx, locks ...*dblock.Lock) error {
	return map[string]func(ctx context.Context, tx Tx, locks ...*dblock.Lock) error{"Guard": c.Guard,
		"UnlockTx": c.UnlockTx}
}

// foreignLock: the lock of another client is refused before the transaction is touched. The locks
// beside it stay as they were.
func foreignLock(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	own, foreign := lock(t, c, "own"), lock(t, other, "foreign")
	tx := beginTx(t, a, e.levels()[0])
	commit(t, tx)
	for what, call := range c.inTx() {
		err := call(brief(t), tx, own, foreign)
		var named *dblock.LockError
		if !errors.Is(err, dblock.ErrInvalidOption) || !errors.As(err, &named) || named.Name != "foreign" {
			t.Errorf("%s of another client's lock: %v", what, err)
		}
		is(t, call(brief(t), tx), dblock.ErrInvalidOption)
		is(t, call(brief(t), tx, own, nil), dblock.ErrInvalidOption)
	}
	live(t, own)
	live(t, foreign)
	unlock(t, own)
	unlock(t, foreign)
}

// severalInTx also gives a lock twice, which is one.
func severalInTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	level := e.levels()[0]
	all, err := c.LockAll(t.Context(), []string{"c", "a", "b"})
	is(t, err, nil)
	tx := beginTx(t, a, level)
	is(t, c.Guard(t.Context(), tx, append(all.All(), all.All()[0])...), nil)
	is(t, c.UnlockTx(t.Context(), tx, append(all.All(), all.All()[0])...), nil)
	commit(t, tx)
	is(t, all.Unlock(t.Context()), nil)
	for _, name := range all.Names() {
		e.free(t, name)
	}

	all, err = c.LockAll(t.Context(), []string{"a", "b", "c"})
	is(t, err, nil)
	breaks(t, other, "b", 1)
	for what, call := range c.inTx() {
		tx := beginTx(t, a, level)
		err := call(t.Context(), tx, all.All()...)
		var named *dblock.LockError
		if !errors.Is(err, dblock.ErrLost) || !errors.As(err, &named) || named.Name != "b" {
			t.Errorf("%s: %v", what, err)
		}
		rollback(t, tx)
	}
	tx = beginTx(t, a, level)
	is(t, c.Guard(t.Context(), tx, all.All()[0], all.All()[2]), nil)
	commit(t, tx)
	is(t, all.Unlock(t.Context()), dblock.ErrLost)
	e.free(t, "a")
	e.free(t, "c")
}

// ofTx are the calls in a transaction, with the lock and the name that they have.
func (c Client) ofTx(l *dblock.Lock, name string) map[string]func(ctx context.Context, tx Tx) error {
	return map[string]func(ctx context.Context, tx Tx) error{
		"Guard":     func(ctx context.Context, tx Tx) error { return c.Guard(ctx, tx, l) },
		"UnlockTx":  func(ctx context.Context, tx Tx) error { return c.UnlockTx(ctx, tx, l) },
		"LockTx":    func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, name) },
		"TryLockTx": func(ctx context.Context, tx Tx) error { return c.TryLockTx(ctx, tx, name) },
	}
}

// readOnlyTx has transactions of a pool of its own. On MySQL and MariaDB a read-only transaction
// may lock rows, and only UnlockTx writes.
func readOnlyTx(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	l := lock(t, c, "held")
	for _, s := range e.wiring.ReadOnly {
		db := e.db
		db.DSN = s.DSN(db.DSN)
		b := e.wiring.Open(t, db, 3)
		for what, call := range c.ofTx(l, "free") {
			tx := beginTx(t, b, e.levels()[0])
			if e.wiring.Kind == Postgres { // lib/pq begins its transactions READ WRITE
				is(t, tx.exec(t.Context(), "SET TRANSACTION READ ONLY"), nil)
			}
			err := call(brief(t), tx)
			if ended := tx.rollback(); e.wiring.Kind != SQLite { // which may have done that with the error
				require.NoError(t, ended)
			}
			locks := what != "UnlockTx" && e.wiring.Kind != Postgres && e.wiring.Kind != SQLite
			if !(locks && err == nil) && (!errors.Is(err, dblock.ErrReadOnly) ||
				!strings.Contains(err.Error(), "the transaction is read-only: begin it without READ ONLY")) {
				t.Errorf("%s in a transaction that is read-only (%s): %v", what, s.Name, err)
			}
		}
	}
	live(t, l)
	tx := beginTx(t, a, e.levels()[0])
	is(t, c.UnlockTx(t.Context(), tx, l), nil)
	commit(t, tx)
	unlock(t, l)
	e.free(t, "held")
}

func openRows(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	l := lock(t, c, "held")
	for what, call := range c.ofTx(l, "free") {
		tx := beginTx(t, a, e.levels()[0])
		done, err := tx.rows(t.Context(), "SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3")
		is(t, err, nil)
		err = call(brief(t), tx)
		if e.wiring.Kind == SQLite { // its connections run several statements at a time
			is(t, err, nil)
			done()
			rollback(t, tx)
			continue
		}
		done()
		require.Error(t, err, what, "with open rows")
		switch says := strings.Contains(err.Error(), "rows of the transaction are still open: close them"); {
		case errors.Is(err, dblock.ErrConfig), errors.Is(err, sqldriver.ErrBadConn):
			if !says {
				t.Errorf("%s with open rows: %v", what, err)
			}
		default: // lib/pq and pgdriver send the statement, and read the rows as its answer
			is(t, err, dblock.ErrUnavailable)
		}
		if _, kept := tx.(pgxTx); kept { // behind database/sql the drivers lose the connection, always or at times
			is(t, err, dblock.ErrConfig)
			assert.NoError(t, call(brief(t), tx), what, "after the rows were closed")
		}
		_ = tx.rollback()
	}
	live(t, l)
	tx := beginTx(t, a, e.levels()[0])
	is(t, c.Guard(t.Context(), tx, l), nil)
	commit(t, tx)
	unlock(t, l)
}

func endedTx(t *testing.T, e *env) {
	a, c := e.appClient(t, 6)
	l := lock(t, c, "held")
	for _, end := range []func(testing.TB, Tx){commit, rollback} {
		tx := beginTx(t, a, e.levels()[0])
		end(t, tx)
		for what, call := range c.ofTx(l, "free") {
			err := call(brief(t), tx)
			drivers := errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed)
			if !errors.Is(err, dblock.ErrTxDone) || !drivers || errors.Is(err, dblock.ErrUnavailable) {
				t.Errorf("%s in a transaction that has ended: %v", what, err)
			}
		}
	}
	assert.NoError(t, l.Context().Err(), "the lock was lost")
	unlock(t, l)
}
