package suite

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var endedInServer = inPlaces(own{
	{"a transaction that the server has ended is refused, and nothing is locked or released", endedInTheServer},
})

// serverEnds are ways in which a server ends a transaction, or makes it fail, that the driver knows
// nothing of. Each gets a transaction that has written, and returns the one that has ended.
func (e *env) serverEnds(t *testing.T, a App) map[string]func(tx Tx) Tx {
	sent := func(texts ...string) func(Tx) Tx {
		return func(tx Tx) Tx {
			for _, text := range texts {
				require.NoError(t, tx.exec(t.Context(), text), text)
			}
			return tx
		}
	}
	fails := func(text string) func(Tx) Tx {
		return func(tx Tx) Tx {
			require.Error(t, tx.exec(t.Context(), text), text)
			return tx
		}
	}
	ways := map[string]func(Tx) Tx{
		"ROLLBACK": sent("ROLLBACK"), "COMMIT": sent("COMMIT"),
		"a savepoint, and ROLLBACK": sent("SAVEPOINT dblock", "ROLLBACK"),
	}
	switch e.wiring.Kind {
	case Postgres:
		ways["an error"] = fails("SELECT 1 / 0")
		ways["ROLLBACK in a nested transaction"] = func(tx Tx) Tx {
			inner, err := tx.nested(t.Context())
			require.NoError(t, err)
			require.NoError(t, inner.exec(t.Context(), "ROLLBACK"))
			return inner
		}
	case SQLite:
		ways["ON CONFLICT ROLLBACK"] = fails("INSERT OR ROLLBACK INTO ended VALUES (1, 1)")
	default:
		ways["an implicit commit"] = sent("CREATE TABLE IF NOT EXISTS implicit (n integer)")
		ways["a deadlock"] = func(tx Tx) Tx { return deadlocked(t, a, tx) }
		ways["a row that is newer than the snapshot"] = func(tx Tx) Tx {
			_, err := tx.number(t.Context(), "SELECT n FROM ended WHERE id = 1")
			require.NoError(t, err)
			e.exec(t, "UPDATE ended SET n = n + 1 WHERE id = 1")
			if tx.exec(t.Context(), "UPDATE ended SET n = n + 1 WHERE id = 1") == nil { // only MariaDB refuses it
				return sent("ROLLBACK")(tx)
			}
			return tx
		}
	}
	return ways
}

// deadlocked has two transactions wait for each other's rows, and returns the one that the server
// has rolled back.
func deadlocked(t *testing.T, a App, one Tx) (victim Tx) {
	update := func(tx Tx, id string) error { return tx.exec(t.Context(), "UPDATE ended SET n = n + 1 WHERE id = "+id) }
	other := beginTx(t, a, sql.LevelDefault)
	require.NoError(t, update(one, "1"))
	require.NoError(t, update(other, "2"))
	done := async(func() error { return update(other, "1") })
	mine := update(one, "2")
	if err := within(t, patience, "the deadlock is found", done); (err == nil) == (mine == nil) {
		t.Fatalf("of two transactions in a deadlock one goes on: %v, %v", mine, err)
	}
	if mine == nil {
		rollback(t, one)
		return other
	}
	rollback(t, other)
	return one
}

// Broken by a step that locks or writes without a proof that its transaction is open.
func endedInTheServer(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	e.exec(t, "CREATE TABLE ended (id integer PRIMARY KEY, n integer)")
	e.exec(t, "INSERT INTO ended VALUES (1, 0), (2, 0)")
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	l, share := lock(t, c, "held"), lock(t, c, "shared", dblock.Shared())
	lock(t, other, "theirs")
	steps := map[string]func(ctx context.Context, tx Tx) error{
		"LockTx of a held name": func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, "theirs") },
		"TryLockTx of a held name": func(ctx context.Context, tx Tx) error {
			return c.TryLockTx(ctx, tx, "theirs")
		},
		"LockTx of a new name": func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, "new") },
		"Guard of a share":     func(ctx context.Context, tx Tx) error { return c.Guard(ctx, tx, share) },
		"UnlockTx of a share":  func(ctx context.Context, tx Tx) error { return c.UnlockTx(ctx, tx, share) },
	}
	for what, step := range c.ofTx(l, "free") {
		steps[what] = step
	}
	for way, end := range e.serverEnds(t, a) {
		for what, step := range steps {
			begun := beginTx(t, a, sql.LevelDefault)
			require.NoError(t, begun.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"))
			tx := end(begun)
			err := step(brief(t), tx)
			assert.ErrorIs(t, err, dblock.ErrTxDone, what, "after", way)
			assert.ErrorIs(t, err, sql.ErrTxDone, what, "after", way)
			if err != nil && !strings.Contains(err.Error(), "roll it back, and begin another") {
				t.Errorf("%s after %s: %v: want what happened, and what to do", what, way, err)
			}
			_, _ = tx.rollback(), begun.rollback()
			refused(t, other, "held")
			refused(t, other, "shared")
			unlock(t, lock(t, other, "free"))
			require.Equal(t, e.waiting(t, "theirs"), 0, "waiters for what another client holds")
		}
	}
	for _, held := range []*dblock.Lock{l, share} {
		live(t, held)
		tx := beginTx(t, a, sql.LevelDefault)
		require.NoError(t, c.Guard(brief(t), tx, held))
		require.NoError(t, c.UnlockTx(brief(t), tx, held))
		commit(t, tx)
		unlock(t, held)
		e.free(t, held.Name())
	}
}
