package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Rule 16: guards of holds, and takeovers of them, in a fixed order. docs/decisions/0013-guards.md
// lists the interleavings.

// guardian is a lock that is to be taken over while a transaction guards it.
type guardian struct {
	server
	application
	by    protocol.Request
	held  protocol.Held
	taker actor
}

// take takes the lock over.
type take func(t *testing.T, g guardian) error

var takes = map[string]take{
	"of the dead": func(t *testing.T, g guardian) error {
		g.exec(t, "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", g.held.Session)
		return taken(drivertest.TakeOver(t.Context(), g.taker, g.taker.session, g.held.Name, g.holder(0)))
	},
	"of a fixed lease": func(t *testing.T, g guardian) error {
		g.over(t)
		return taken(drivertest.TakeOver(t.Context(), g.taker, g.taker.session, g.held.Name, g.holder(-1)))
	},
	"by Break": func(t *testing.T, g guardian) error {
		return taken(drivertest.Break(t.Context(), g.taker, g.taker.session, g.held.Name, g.holder(0),
			protocol.Event{Name: g.held.Name, Kind: "broken"}))
	},
	"by the owner": func(t *testing.T, g guardian) error {
		again := g.taker.request(g.held.Name)
		again.Thread = g.by.Thread
		got, err := driver.Do(t.Context(), g.taker, protocol.Reenter{Request: again})
		return taken(nil, got.Done(), err)
	},
}

// over ends the lock's fixed lease, which it need not have had. It writes once: the name's row may
// be locked afterwards.
func (g guardian) over(t *testing.T) {
	t.Helper()
	table := map[bool]string{false: "dblock_locks", true: "dblock_shares"}[g.by.Units > 0]
	if g.number(t, "SELECT COALESCE(MAX(expires_at), 0) FROM "+table+" WHERE name = ?", g.held.Name) != 1 {
		g.exec(t, "UPDATE "+table+" SET expires_at = 1 WHERE name = ?", g.held.Name)
	}
}

func taken(_ []protocol.Handoff, ok bool, err error) error {
	if err == nil && !ok {
		err = errors.New("not taken")
	}
	return err
}

func (g guardian) holder(lease int) protocol.Holder {
	h := protocol.Holder{Session: g.held.Session, Attempt: g.by.Attempt, Units: g.by.Units,
		Grant: protocol.Grant{Token: g.held.Token}}
	if lease < 0 {
		h.Grant.Lease = -1
	}
	return h
}

// eachTake runs a test for each kind of takeover, of the whole name and of a share.
func eachTake(t *testing.T, test func(t *testing.T, g guardian, take take)) {
	each(t, func(t *testing.T, s server) {
		a, taker := s.application(t), s.actor(t)
		for name, take := range takes {
			for _, units := range []int{0, 1} {
				if units > 0 && name == "by the owner" { // a share is not entered again
					continue
				}
				kind := map[int]string{0: "/whole", 1: "/share"}[units]
				t.Run(name+kind, func(t *testing.T) {
					g := guardian{server: s, application: a, taker: taker, by: protocol.Request{Units: units}}
					test(t, g.anew(t), take)
				})
			}
		}
	})
}

// anew is another lock of the same kind, in a session of its own.
func (g guardian) anew(t *testing.T) guardian {
	t.Helper()
	a := actor{Backend: g.application.engine.Backend, session: id()}
	require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
	r := a.request(id())
	if r.Units = g.by.Units; r.Units > 0 {
		r.Of = protocol.Readers
	}
	g.by, g.held = r, a.share(t, r)
	return g
}

func (g guardian) make(t *testing.T) {
	t.Helper()
	require.NoError(t, g.application.engine.In(nil).MakeGuard(t.Context(), g.held, g.beside))
}

func (g guardian) guard(t *testing.T, tx *sql.Tx) error {
	t.Helper()
	return g.application.engine.In(tx).Guard(t.Context(), g.held, g.beside)
}

// begin opens a transaction that sees the tables of the application as they are now, above READ
// COMMITTED.
func (g guardian) begin(t *testing.T, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, _ := g.application.begin(t, level)
	var n int
	require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM dblock_schema").Scan(&n))
	return tx
}

func (g guardian) takeovers(t *testing.T) int64 {
	t.Helper()
	return g.number(t, "SELECT takeovers FROM dblock_guards WHERE attempt = ?", g.by.Attempt)
}

// InnoDB keeps the locks of rows across a rollback to a savepoint, as Guard says.
func TestAGuardOutlivesARollbackToASavepoint(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		g.make(t)
		tx := g.begin(t, sql.LevelReadCommitted)
		require.NoError(t, require.ErrOf(tx.Exec("SAVEPOINT theirs")))
		require.NoError(t, g.guard(t, tx))
		require.NoError(t, require.ErrOf(tx.Exec("ROLLBACK TO SAVEPOINT theirs")))
		is(t, take(t, g), driver.ErrBusy)
		require.NoError(t, tx.Commit())
		require.NoError(t, take(t, g))
	})
}

// Guard has looked, and then the lock is taken over before the share lock. Broken by a Guard that
// does not look at what takeovers write, and by takeovers that write nothing.
func TestAGuardThatIsOvertakenIsRefused(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		g.make(t)
		inBetween := g
		inBetween.beside = g.then(func() { require.NoError(t, take(t, g)) })
		is(t, inBetween.guard(t, g.begin(t, sql.LevelRepeatableRead)), driver.ErrNotHeld)
	})
}

// An optimistic transaction of TiDB reads its snapshot, which is older than the first guard of the
// lock, or than the lock. Broken by a step that takes that for the end of the hold: the client
// would give up a lock that it has.
func TestAStepInAnOldSnapshotIsRetriedAndTheLockIsKept(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		e := a.engine
		for _, units := range []int{0, 1} {
			g := guardian{server: s, application: a, by: protocol.Request{Units: units}}.anew(t)
			after := func(change string) driver.OnSideConn { // the transaction sees less than the look
				return g.then(func() { g.exec(t, change, g.held.Name) })
			}
			g.make(t)
			tx := g.begin(t, sql.LevelReadCommitted)
			is(t, e.In(tx).Guard(t.Context(), g.held, after("DELETE FROM dblock_guards WHERE name = ?")),
				driver.ErrRetry)
			require.NoError(t, tx.Rollback())
			g.make(t)
			tx = g.begin(t, sql.LevelReadCommitted)
			require.NoError(t, g.guard(t, tx))
			require.NoError(t, tx.Rollback())

			tx = g.begin(t, sql.LevelReadCommitted)
			older := after("UPDATE dblock_locks SET token = token - 1000000, session_id = NULL WHERE name = ?")
			is(t, e.In(tx).Release(t.Context(), g.held, protocol.Detachment{}, older), driver.ErrRetry)
			require.NoError(t, tx.Rollback())
			if units == 0 {
				g.exec(t, "UPDATE dblock_locks SET session_id = ? WHERE name = ?", g.held.Session, g.held.Name)
			}
			g.exec(t, "UPDATE dblock_locks SET token = token + 1000000 WHERE name = ?", g.held.Name)
			tx = g.begin(t, sql.LevelReadCommitted)
			require.NoError(t, e.In(tx).Release(t.Context(), g.held, protocol.Detachment{}, g.beside))
			require.NoError(t, tx.Commit())
		}
	})
}

// A takeover is between its look for guards and its commit. Broken by a guard that is made without
// the lock of the name's row.
func TestNoGuardIsMadeUnderATakeover(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		if g.by.Units > 0 {
			return
		}
		over := g.transaction(t, "SELECT name FROM dblock_locks WHERE name = ? FOR UPDATE", g.held.Name)
		var n int
		err := over.QueryRow("SELECT takeovers FROM dblock_guards WHERE attempt = ? FOR UPDATE", g.by.Attempt).Scan(&n)
		is(t, err, sql.ErrNoRows)
		is(t, g.application.engine.In(nil).MakeGuard(t.Context(), g.held, g.beside), driver.ErrBusy)
		is(t, g.guard(t, g.begin(t, sql.LevelRepeatableRead)), driver.ErrRetry)
		_, err = over.Exec("UPDATE dblock_locks SET session_id = NULL, attempt = '' WHERE name = ?", g.held.Name)
		require.NoError(t, err)
		require.NoError(t, over.Commit())
		is(t, g.application.engine.In(nil).MakeGuard(t.Context(), g.held, g.beside), driver.ErrNotHeld)
	})
}

// A guard is being made. Broken by a takeover that looks for guards before it has the name's row.
func TestATakeoverSeesTheGuardThatItWaitedFor(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		g.over(t) // for who takes over what is over
		making := g.transaction(t, "SELECT name FROM dblock_locks WHERE name = ? FOR UPDATE", g.held.Name)
		_, err := making.Exec("INSERT INTO dblock_guards (attempt, name, session_id) VALUES (?, ?, ?)", g.by.Attempt,
			g.held.Name, g.held.Session)
		require.NoError(t, err)
		taking := start(t, func(context.Context) (int, error) { return 0, take(t, g) })
		g.blocked(t, g.taker)
		require.NoError(t, making.Commit())
		require.NoError(t, (<-taking).err)
		assert.Equal(t, g.takeovers(t), 1, "takeovers were written")
	})
}

// Broken by a Guard that locks first and then finds out that the lock is lost: its row stays locked
// with the transaction. At REPEATABLE READ, a row that is missing would leave the gap locked.
func TestAGuardThatFailedLocksNothing(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		g.make(t)
		g.exec(t, "UPDATE dblock_sessions SET dead = 1 WHERE id = ?", g.held.Session)
		tx := g.begin(t, sql.LevelRepeatableRead)
		is(t, g.guard(t, tx), driver.ErrNotHeld)
		require.NoError(t, take(t, g))
		g.exec(t, "DELETE FROM dblock_guards WHERE attempt = ?", g.by.Attempt)
		is(t, g.guard(t, tx), driver.ErrNotHeld)
		got := <-start(t, func(ctx context.Context) (sql.Result, error) {
			return g.server.pool.ExecContext(ctx,
				"INSERT INTO dblock_guards (attempt, name, session_id) VALUES (?, '', '')", g.by.Attempt)
		})
		require.NoError(t, got.err)
	})
}

// Broken by a release that touches the guard's row, and by a DropGuards that waits for it, or goes
// by the name alone.
func TestAReleaseAndTheReaperPassByAGuardedTransaction(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, _ take) {
		g.make(t)
		tx := g.begin(t, sql.LevelRepeatableRead)
		require.NoError(t, g.guard(t, tx))
		drop := func(want int) {
			t.Helper()
			got := <-start(t, func(ctx context.Context) (int, error) { return g.DropGuards(ctx, 10) })
			if got.err != nil || got.value != want {
				t.Errorf("%+v, want %d guards deleted", got, want)
			}
		}
		drop(0)
		require.NoError(t, (<-start(t, g.doing(protocol.Release(g.held, true, false)))).err)
		drop(0)
		require.NoError(t, tx.Rollback())
		again := g.by // another hold of the same name, and of the same session
		again.Attempt = id()
		h := g.share(t, again)
		require.NoError(t, g.application.engine.In(nil).MakeGuard(t.Context(), h, g.beside))
		drop(1)
		drop(0)
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), g.application.engine, h, true)))
		drop(1)
	})
}
