package suite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// bySQL guards a lock in a transaction as docs/transactions.md says, in any language.
func (e *env) bySQL(tx Tx, name string, token int64) error {
	if e.wiring.Kind == Postgres {
		return tx.exec(context.Background(), fmt.Sprintf("SELECT dblock_guard('%s', %d)", name, token))
	}
	count := fmt.Sprintf("SELECT COUNT(*) FROM dblock_locks WHERE name = '%s' AND session_id IS NOT NULL AND "+
		"first_token = %d AND last_token = %[2]d", name, token)
	if e.wiring.Kind == TiDB {
		count = strings.Replace(count, "COUNT(*)", "1", 1) + " FOR UPDATE"
	} else if e.wiring.Kind != SQLite {
		count += " LOCK IN SHARE MODE"
	} else if err := tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)"); err != nil {
		// as BEGIN IMMEDIATE locks the database
		return err
	}
	n, err := tx.number(context.Background(), count)
	if err == nil && n != 1 {
		err = driver.ErrNotHeld
	}
	return err
}

// Broken by a statement that reads the lock's row without locking it.
func guardedBySQL(t *testing.T, e *env) {
	e.takeovers(t, func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover) {
		if w.units > 0 && e.wiring.Kind != Postgres || w.units == 0 && w.lease > 0 {
			return // the statement is for whole names; the test ages a lease in the row that is locked
		}
		held, holder := e.takeFor(t, a, strings.ReplaceAll(name, "'", ""), w)
		tx := beginTx(t, a, level)
		snapshot(t, tx)
		require.NoError(t, e.bySQL(tx, held.Name, held.Token))
		if e.wiring.Kind != SQLite { // where nobody can write now
			require.ErrorIs(t, w.take(t, e, other, held, holder), driver.ErrBusy, "taking over a guarded lock")
		}
		e.commitOne(t, tx)
		require.NoError(t, w.take(t, e, other, held, holder), "taking over after the transaction")
		late := beginTx(t, a, level)
		require.Error(t, e.bySQL(late, held.Name, held.Token), "a lock that was taken over is guarded")
		rollback(t, late)
	})
}
