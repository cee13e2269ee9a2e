package suite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
)

var trying = inPlaces(own{
	{"TryLock does not refuse a name that nobody has, whose row a transaction has locked for a moment", momentarily},
	{"TryLock does not refuse a name whose dead holder another is ending just then", endedByAnother},
	{"TryLock does not refuse a name that another has taken from a dead holder since it looked", freedByAnother},
})

// meet makes a client, and a transaction that ends when a statement of the client finds a row
// locked.
func (e *env) meet(t *testing.T) (Client, Tx) {
	t.Helper()
	e.needsSQL(t)
	tx := beginTx(t, e.app(t, 2), e.readCommitted())
	a := e.app(t, 5)
	met := sync.OnceFunc(func() { rollback(t, tx) })
	a.hook(func(ctx context.Context, c *fakedb.Call) error {
		err := c.Do(ctx)
		if c.Method == "Run" && errors.Is(err, driver.ErrBusy) {
			met()
		}
		return err
	})
	return e.clientOf(t, a, dblock.WithoutReaper()), tx
}

// try takes a name that nobody has.
func try(t *testing.T, c Client, name string, options ...dblock.LockOption) {
	t.Helper()
	l, err := c.TryLock(t.Context(), name, options...)
	require.NoError(t, err)
	unlock(t, l)
}

// Broken by an engine's ErrBusy that counts as a holder.
func momentarily(t *testing.T, e *env) {
	for name, options := range map[string][]dblock.LockOption{"whole": nil, "shared": {dblock.Shared()}} {
		c, tx := e.meet(t)
		try(t, c, name, options...)
		require.NoError(t, tx.exec(t.Context(), "UPDATE dblock_locks SET next_ticket = next_ticket WHERE name = '"+name+
			"'"))
		try(t, c, name, options...)
	}
}

func endedByAnother(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where one waits for the other
		t.Skip("no row is locked by itself")
	}
	c, tx := e.meet(t)
	try(t, c, "orphaned")
	e.exec(t, "DELETE FROM dblock_locks")
	e.orphan(t, "orphaned", "deadsession", -time.Second)
	require.NoError(t, tx.exec(t.Context(), "UPDATE dblock_sessions SET started_at = started_at WHERE id = "+
		"'deadsession'"))
	try(t, c, "orphaned")
}

func freedByAnother(t *testing.T, e *env) {
	e.orphan(t, "orphaned", "deadsession", -time.Second)
	a := e.app(t, 5)
	sweep := sync.OnceFunc(func() {
		if report, err := reaper.Sweep(t.Context(), a.engine()); err != nil || report.Freed != 1 {
			t.Errorf("swept: %v, %v", report, err)
		}
	})
	a.hook(fakedb.After(func(c *fakedb.Call) bool { return c.Method == "Read" }, sweep))
	try(t, e.clientOf(t, a, dblock.WithoutReaper()), "orphaned")
}
