package client

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// dying is an engine that works in the caller's transactions as MySQL's does, with a look beside
// them, and on request is told during that look that its session is dead.
type dying struct {
	driver.Backend
	driver.Transactions[*sql.Tx]
	due  atomic.Bool
	dies atomic.Bool // the session of the next heartbeat is dead
	dead atomic.Value
}

type dyingUpkeep struct {
	driver.Upkeep
	of *dying
}

func (d *dying) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	up, err := d.Backend.Upkeep(ctx, session)
	return dyingUpkeep{up, d}, err
}

func (u dyingUpkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	if u.of.dies.CompareAndSwap(true, false) {
		u.of.dead.Store(session)
	}
	if u.of.dead.Load() == session { // it is asked twice
		return false, nil
	}
	return u.Upkeep.Heartbeat(ctx, session, ttl)
}

func (d *dying) look(ctx context.Context, aside driver.OnSideConn) error {
	return aside(ctx, func(ctx context.Context, _ driver.Upkeep) error {
		if d.due.CompareAndSwap(true, false) {
			d.dies.Store(true)
			<-ctx.Done() // the next heartbeat is due before the time of an aside is over
			return ctx.Err()
		}
		return nil
	})
}

func (d *dying) Guard(ctx context.Context, tx *sql.Tx, h driver.Held, aside driver.OnSideConn) error {
	if err := d.look(ctx, aside); err != nil {
		return err
	}
	return d.Transactions.Guard(ctx, tx, h, aside)
}

func (d *dying) LockTx(
	ctx context.Context, tx *sql.Tx, name string, may driver.Pass, wait bool, aside driver.OnSideConn,
) (driver.State, bool, error) {
	if err := d.look(ctx, aside); err != nil {
		return driver.State{}, false, err
	}
	return d.Transactions.LockTx(ctx, tx, name, may, wait, aside)
}

func TestASessionThatEndsInTheMidstOfWorkInATransaction(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	engine := sqlite.New(db)
	d := &dying{Backend: engine.Backend, Transactions: engine.Transactions}
	client, err := dblock.New(driver.Engine[*sql.Tx]{Backend: d, Transactions: d})
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, client.Close(context.Background()))
	}()
	inTx := func(do func(tx *sql.Tx) error) error {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		return do(tx)
	}
	t.Run("Guard says that the lock is lost", func(t *testing.T) {
		l, err := client.Lock(t.Context(), "guarded")
		require.NoError(t, err)
		d.due.Store(true)
		if err := inTx(func(tx *sql.Tx) error { return client.Guard(t.Context(), tx, l) }); !errors.Is(err,
			dblock.ErrLost) {
			t.Errorf("got %v", err)
		}
		assert.ErrorIs(t, l.Unlock(t.Context()), dblock.ErrLost, "unlock")
	})
	t.Run("LockTx goes on with the next session", func(t *testing.T) {
		d.due.Store(true)
		if err := inTx(func(tx *sql.Tx) error { return client.LockTx(t.Context(), tx, "locked") }); err != nil {
			t.Error(err)
		}
	})
}
