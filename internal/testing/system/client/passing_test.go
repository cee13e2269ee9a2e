package client

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// scripted is an engine whose LockTx does what the test says.
type scripted struct {
	driver.Transactions[*sql.Tx]
	lockTx func(tx *sql.Tx, may driver.Pass) (driver.State, bool, error)
}

func (s *scripted) LockTx(
	_ context.Context, tx *sql.Tx, _ string, may driver.Pass, _ bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	return s.lockTx(tx, may)
}

// A transaction that passed a lease to wait for the row cannot turn back on MySQL when a ticket has
// come meanwhile.
func TestALeaseThatMayBePassedStaysSo(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	engine := sqlite.New(db)
	s := &scripted{Transactions: engine.Transactions}
	client := newClient(t, driver.Engine[*sql.Tx]{Backend: engine.Backend, Transactions: s})
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	lockTx := func(tx *sql.Tx) { require.NoError(t, client.LockTx(t.Context(), tx, "n")) }
	var attempt string
	first := begin()
	s.lockTx = func(tx *sql.Tx, may driver.Pass) (driver.State, bool, error) {
		err := db.QueryRow("SELECT attempt FROM dblock_locks WHERE name = 'n'").Scan(&attempt)
		if err != nil { // nobody has had it: the client gets a lease for the transaction
			return driver.State{}, false, nil
		}
		if !may(attempt, 5, tx) {
			t.Error("the transaction may not pass the lease that was granted for it")
		}
		// the lease stays until the transaction ends
		_, err = tx.Exec("UPDATE dblock_sessions SET dead = dead WHERE id = ''")
		return driver.State{}, true, err
	}
	lockTx(first)
	s.lockTx = func(tx *sql.Tx, may driver.Pass) (driver.State, bool, error) {
		if !may(attempt, 5, tx) {
			t.Error("the transaction may not pass the lease that stands behind it")
		}
		return driver.State{}, true, nil
	}
	lockTx(first)
	s.lockTx = func(tx *sql.Tx, may driver.Pass) (driver.State, bool, error) {
		if may(attempt, 1, tx) {
			t.Error("another transaction may pass the lease although somebody waits for it")
		}
		if may("another", 0, tx) || may("", 0, tx) {
			t.Error("a transaction may pass a stranger's lease")
		}
		if !may(attempt, 0, tx) {
			t.Error("another transaction may not pass the lease although nobody waits for it")
		}
		if !may(attempt, 1, tx) {
			t.Error("the transaction that passed the lease may not go on at the row")
		}
		return driver.State{}, true, nil
	}
	lockTx(begin())
	assert.NoError(t, first.Rollback())
}
