package suite

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/migrate"
)

var otherDatabase = inPlaces(own{
	{"a transaction of another database that has dblock's tables is refused, and no lock is lost", inOtherDatabase},
	{"a client that has no session yet refuses a transaction of another database", beforeTheSession},
	{"a client locks in transactions of its database whose tables were made anew", madeAnew},
})

// other is a pool on another database with dblock's tables, which has names of its own. Those that
// newEnv makes are copies of one.
func (e *env) other(t *testing.T) App {
	t.Helper()
	o := emptyEnv(t, e.wiring)
	is(t, migrate.Up(t.Context(), o.db.SQL(t), o.db.Engine), nil)
	a := o.app(t, 6)
	c := o.clientOf(t, a)
	unlock(t, lock(t, c, "known"))
	lock(t, c, "held there")
	return a
}

// Broken by a client that takes what it has locked elsewhere for its own.
func inOtherDatabase(t *testing.T, e *env) {
	there, a := e.other(t), e.app(t, 6)
	c := e.clientOf(t, a)
	unlock(t, lock(t, c, "known"))
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		l, share := lock(t, c, name), lock(t, c, name+" shared", dblock.Shared())
		for what, call := range map[string]func(ctx context.Context, tx Tx) error{
			"LockTx":               func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, "known") },
			"TryLockTx":            func(ctx context.Context, tx Tx) error { return c.TryLockTx(ctx, tx, "known") },
			"LockTx of a new name": func(ctx context.Context, tx Tx) error { return c.LockTx(ctx, tx, "new "+name) },
			"LockTx of what is held there": func(ctx context.Context, tx Tx) error {
				return c.LockTx(ctx, tx, "held there")
			},
			"Guard":               func(ctx context.Context, tx Tx) error { return c.Guard(ctx, tx, l) },
			"Guard of a share":    func(ctx context.Context, tx Tx) error { return c.Guard(ctx, tx, share) },
			"UnlockTx":            func(ctx context.Context, tx Tx) error { return c.UnlockTx(ctx, tx, l) },
			"UnlockTx of a share": func(ctx context.Context, tx Tx) error { return c.UnlockTx(ctx, tx, share) },
		} {
			tx := beginTx(t, there, level)
			assert.ErrorIs(t, call(brief(t), tx), dblock.ErrConfig, what, "in a transaction of another database")
			rollback(t, tx)
		}
		for _, held := range []*dblock.Lock{l, share} {
			live(t, held)
			tx := beginTx(t, a, level)
			is(t, c.Guard(t.Context(), tx, held), nil)
			rollback(t, tx)
			unlock(t, held)
		}
	})
}

func beforeTheSession(t *testing.T, e *env) {
	tx := beginTx(t, e.other(t), e.readCommitted())
	is(t, e.client(t).LockTx(brief(t), tx, "known"), dblock.ErrConfig)
}

// The tables are made anew under a client that has no session, which would notice.
func madeAnew(t *testing.T, e *env) {
	e.needsDown(t)
	a := e.app(t, 6)
	c := e.clientOf(t, a)
	tx := beginTx(t, a, e.readCommitted())
	lockTx(t, c, tx, "n")
	commit(t, tx)
	pool := e.db.SQL(t)
	is(t, migrate.Down(t.Context(), pool, e.db.Engine), nil)
	is(t, migrate.Up(t.Context(), pool, e.db.Engine), nil)
	tx = beginTx(t, a, e.readCommitted())
	lockTx(t, c, tx, "n")
	commit(t, tx)
}
