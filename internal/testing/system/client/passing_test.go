package client

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// scripted is an engine whose LockTx does what the test says.
type scripted struct {
	lockTx func(tx *sql.Tx, may driver.Pass) (driver.State, bool, error)
}

// scriptedTx is a transaction of a scripted engine.
type scriptedTx struct {
	driver.Tx
	tx     *sql.Tx
	engine *scripted
}

func (s scriptedTx) Lock(
	_ context.Context, _ string, may driver.Pass, _ bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	return s.engine.lockTx(s.tx, may)
}

// A transaction that passed a lease to wait for the row cannot turn back on MySQL when a ticket has
// come meanwhile.
func TestALeaseThatMayBePassedStaysSo(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	engine := inside.Of(sqlite.New(db))
	s := &scripted{}
	client := newClient(t, *inside.Make[dblock.Engine[*sql.Tx]](driver.Engine[*sql.Tx]{
		Backend: engine.Backend, In: func(tx *sql.Tx) driver.Tx { return scriptedTx{engine.In(tx), tx, s} },
	}))
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
