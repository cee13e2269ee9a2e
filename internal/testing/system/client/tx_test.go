package client

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// dying is an engine that works in the caller's transactions as MySQL's does, with a look beside
// them, and on request is told during that look that its session is dead.
type dying struct {
	due  atomic.Bool
	dies atomic.Bool // the session of the next heartbeat is dead
	dead atomic.Value
}

func (d *dying) hook(ctx context.Context, c *fakedb.Call) error {
	if c.Method != "Heartbeat" {
		return c.Do(ctx)
	}
	if d.dies.CompareAndSwap(true, false) {
		d.dead.Store(c.Session)
	}
	if d.dead.Load() == c.Session { // it is asked twice
		return nil // not alive
	}
	return c.Do(ctx)
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

// dyingTx looks before each step.
type dyingTx struct {
	driver.Tx
	engine *dying
}

func (d dyingTx) Guard(ctx context.Context, h protocol.Held, aside driver.OnSideConn) error {
	if err := d.engine.look(ctx, aside); err != nil {
		return err
	}
	return d.Tx.Guard(ctx, h, aside)
}

func (d dyingTx) Lock(
	ctx context.Context, name string, may driver.Pass, wait bool, aside driver.OnSideConn,
) (driver.State, bool, error) {
	if err := d.engine.look(ctx, aside); err != nil {
		return driver.State{}, false, err
	}
	return d.Tx.Lock(ctx, name, may, wait, aside)
}

func TestASessionThatEndsInTheMidstOfWorkInATransaction(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	engine := inside.Of(sqlite.New(db))
	d := &dying{}
	client, err := dblock.New(*inside.Make[dblock.Engine[*sql.Tx]](driver.Engine[*sql.Tx]{
		Backend: fakedb.Hooked(engine.Backend, d.hook),
		In:      func(tx *sql.Tx) driver.Tx { return dyingTx{engine.In(tx), d} },
	}))
	require.NoError(t, err)
	defer func() { assert.NoError(t, client.Close(context.Background())) }()
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
