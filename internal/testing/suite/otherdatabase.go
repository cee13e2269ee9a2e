package suite

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/migrate"
)

var otherDatabase = inPlaces(own{
	{"a transaction of another database that has dblock's tables is refused, and no lock is lost", inOtherDatabase},
	{"a client that has no session yet refuses a transaction of another database", beforeTheSession},
	{"a client locks in transactions of its database whose tables were made anew", madeAnew},
	{"a connection that is left where other tables are changes nothing", leftElsewhere},
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

// Broken by a client that takes what it has locked elsewhere for its own. On MySQL databases are
// schemas: a transaction of another one locks in the client's.
func inOtherDatabase(t *testing.T, e *env) {
	there, a := e.other(t), e.app(t, 6)
	c := e.clientOf(t, a)
	unlock(t, lock(t, c, "known"))
	if e.wiring.reserves() {
		l := lock(t, c, "n")
		tx := beginTx(t, there, e.readCommitted())
		lockTx(t, c, tx, "known")
		lockTx(t, c, tx, "held there")
		is(t, assert.ErrOf(e.client(t).TryLock(brief(t), "known")), dblock.ErrNotAcquired)
		is(t, c.Guard(t.Context(), tx, l), nil)
		is(t, c.UnlockTx(t.Context(), tx, l), nil)
		commit(t, tx)
		unlock(t, lock(t, c, "n"))
		return
	}
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
	if err := e.client(t).LockTx(brief(t), tx, "known"); !e.wiring.reserves() {
		is(t, err, dblock.ErrConfig)
	} else {
		is(t, err, nil)
	}
}

// Broken by a statement that does not name the place of its tables: the application has left the
// connections of its pool in another schema, or database, in which another tenant locks, say.
func leftElsewhere(t *testing.T, e *env) {
	there, leave := "tenant", "SET search_path = tenant"
	switch {
	case e.wiring.Kind == Postgres:
		is(t, migrate.Up(t.Context(), e.look, e.db.Engine, migrate.Locks.In(there)), nil)
	case e.wiring.Kind == SQLite: // which looks for a table among the temporary ones first
		there, leave = "", ""
		for table := range strings.FieldsSeq("schema sessions heartbeats locks shares waiters events runs") {
			leave += "CREATE TEMP TABLE dblock_" + table + " AS SELECT * FROM main.dblock_" + table + ";"
		}
	default:
		o := emptyEnv(t, e.wiring)
		is(t, migrate.Up(t.Context(), o.look, o.db.Engine), nil)
		is(t, o.look.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&there), nil)
		leave = "USE " + there
	}
	a, other := e.app(t, 8), e.client(t)
	c := e.clientOf(t, a)
	mine, guarded, passed := lock(t, c, "mine"), lock(t, c, "guarded"), lock(t, c, "passed")
	var left []Tx
	for range 5 {
		tx := beginTx(t, a, sql.LevelDefault)
		is(t, tx.exec(t.Context(), leave), nil)
		left = append(left, tx)
	}
	for _, tx := range left {
		commit(t, tx)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		held, share := lock(t, other, name), lock(t, other, name+" shared", dblock.Shared())
		is(t, assert.ErrOf(c.TryLock(brief(t), name)), dblock.ErrNotAcquired)
		is(t, assert.ErrOf(c.TryLock(brief(t), name+" shared")), dblock.ErrNotAcquired)
		unlock(t, lock(t, c, name+" shared", dblock.Shared()))
		tx := beginTx(t, a, e.readCommitted())
		is(t, c.TryLockTx(brief(t), tx, name), dblock.ErrNotAcquired)
		is(t, c.Guard(t.Context(), tx, guarded), nil)
		rollback(t, tx)
		unlock(t, held)
		unlock(t, share)
		per(t, other, name, longSlot, true)
		per(t, c, name, longSlot, false)
	}
	tx := beginTx(t, a, e.readCommitted())
	is(t, c.UnlockTx(t.Context(), tx, passed), nil)
	commit(t, tx)
	unlock(t, mine)
	unlock(t, guarded)
	for _, table := range []string{"dblock_sessions", "dblock_locks", "dblock_runs", "dblock_events"} {
		if there == "" {
			break
		}
		if n := e.number(t, "SELECT COUNT(*) FROM "+there+"."+table); n > 0 {
			t.Errorf("%d rows in %s of the other place", n, table)
		}
	}
}

// The tables are made anew under a client that has no session, which would notice.
func madeAnew(t *testing.T, e *env) {
	e.needsDown(t)
	a, c := e.appClient(t, 6)
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
