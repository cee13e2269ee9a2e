package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Rule 3. Broken by a release that decides by a snapshot from before the waiter, and by a JoinQueue
// that stays by itself: at the other levels a row that has changed meanwhile fails it.
func TestAReleaseSeesTheWaiterThatItWaitedFor(t *testing.T) {
	// rule 10: whatever the application's default
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			s := newScript(t, "default_transaction_isolation", isolation)
			s.session("a", time.Minute)
			s.session("b", time.Minute)
			g := s.take(request("a", "a1"))
			s.begin()
			s.do(query(postgresdb.LockRow, "n"))
			s.do(join(request("b", "b1")))
			s.behind(func() {
				next, err := drivertest.Release(t.Context(), s, protocol.Held{Name: "n", Session: "a", Token: g.Token},
					true)
				if err != nil || first(next).Attempt != "b1" {
					t.Errorf("the lock went to %+v, %v", next, err)
				}
			})
			for _, attempt := range []string{"b2", "b3"} { // the second knows of the level
				s.begin()
				s.do(join(request("b", "before "+attempt)))
				s.behind(func() { s.enqueue(request("b", attempt)) })
			}
			s.sound()
		})
	}
}

// At REPEATABLE READ a heartbeat looks as old as the transaction. Broken by deciding by it who is
// dead.
func TestUnlockTxTakesNobodyForDeadByAnOldSnapshot(t *testing.T) {
	s := scriptOf(t, "a", "b")
	g := s.take(request("a", "a1"))
	s.enqueue(request("b", "b1"))
	require.NoError(t,
		require.ErrOf(s.pool.Exec(t.Context(), "UPDATE dblock_heartbeats SET expires_at = dblock_now() - 1")))
	tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM dblock_locks").Scan(&n))
	require.NoError(t,
		require.ErrOf(s.pool.Exec(t.Context(), "UPDATE dblock_heartbeats SET expires_at = dblock_now() + 60000000")))
	require.NoError(t, inTx{tx: pgxTx{tx}}.Release(t.Context(), protocol.Held{Name: "n", Session: "a", Token: g.Token},
		protocol.Detachment{}, nil))
	require.NoError(t, tx.Commit(t.Context()))
	if h := s.holder(); h.Attempt != "b1" {
		t.Errorf("the lock went to %+v", h)
	}
}

// The row of a name may come between the statement that locks it and the one that reads it. Broken
// by a transition on what is not locked.
func TestARowThatWasNotLockedCountsAsMissing(t *testing.T) {
	s := scriptOf(t, "a")
	s.have(request("a", "a1"))
	s.begin()
	src := &source{ctx: t.Context(), tx: pgxTx{s.tx}, name: "n"}
	require.NoError(t, src.exec(src.open(query(postgresdb.LockRow, "before it came"), nil)...))
	if n := src.read(); n.Session != "" || n.Token != 0 {
		t.Errorf("read %+v", n.Row)
	}
	s.commit()
}

// READ UNCOMMITTED is READ COMMITTED here. Broken by taking it for a level at which heartbeats look
// old.
func TestUnlockTxPassesOverTheDeadAtReadUncommitted(t *testing.T) {
	s := newScript(t)
	for _, id := range []string{"a", "b", "c"} {
		s.session(id, time.Minute)
	}
	h := s.have(request("a", "a1"))
	s.enqueue(request("b", "b1"))
	s.enqueue(request("c", "c1"))
	require.NoError(t,
		require.ErrOf(s.pool.Exec(t.Context(), "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = 'b'")))
	tx := s.snapshot(pgx.ReadUncommitted)
	require.NoError(t, s.inside("ReleaseTx", tx, h))
	require.NoError(t, tx.Commit(t.Context()))
	if who := s.holder(); who.Attempt != "c1" {
		t.Errorf("the lock went to %+v", who)
	}
}

// Above READ COMMITTED a lock may be newer than the transaction's snapshot: that is no loss of it.
// Broken by taking what the snapshot does not show for given up; the name's row is there before it,
// or is not, or shows another lock.
func TestALockThatIsNewerThanTheSnapshotIsNotLost(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, before := range []string{"no row", "free", "another's"} {
			for _, what := range []string{"Guard", "ReleaseTx"} {
				t.Run(string(level)+"/"+before+"/"+what, func(t *testing.T) {
					s := scriptOf(t, "a", "b")
					var old protocol.Held
					if before != "no row" {
						old = s.have(request("b", "b1"))
					}
					if before == "free" {
						s.release(old)
					}
					tx := s.snapshot(level)
					if before == "another's" {
						s.release(old)
					}
					h := s.have(request("a", "a1"))
					if err := s.inside(what, tx, h); !errors.Is(err, driver.ErrRetry) ||
						errors.Is(err, driver.ErrNotHeld) || pgserver.State(err) != pgserver.SerializationFailure {
						t.Errorf("it is held, and %s says: %v", what, err)
					}
					assert.NoError(t, assert.ErrOf(tx.Exec(t.Context(), "SELECT 1")),
						"the transaction is not usable afterwards")
					s.makeGuard(h)
					assert.NoError(t, s.inside(what, s.snapshot(level), h), "a new transaction")
				})
			}
		}
	}
}

// Broken by taking every lock that is not held for a newer one: who runs the transaction again
// would do so for ever.
func TestALockThatWasGivenUpBeforeTheSnapshotIsLost(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadUncommitted, pgx.ReadCommitted, pgx.RepeatableRead,
		pgx.Serializable} {
		for _, what := range []string{"Guard", "ReleaseTx"} {
			t.Run(string(level)+"/"+what, func(t *testing.T) {
				s := scriptOf(t, "a", "b")
				lost := func(h protocol.Held) {
					t.Helper()
					tx := s.snapshot(level)
					defer tx.Rollback(t.Context())
					assert.ErrorIs(t, s.inside(what, tx, h), driver.ErrNotHeld)
				}
				for _, r := range []protocol.Request{reader("a", "a1"), request("a", "a2")} {
					h := s.have(r)
					s.release(h)
					lost(h)
					other := s.have(request("b", "b1"))
					lost(h)
					s.release(other)
				}
				h := s.have(request("a", "a3"))
				require.NoError(t,
					require.ErrOf(s.pool.Exec(t.Context(), "DELETE FROM dblock_heartbeats WHERE session_id = 'a'")))
				if next, taken, err := drivertest.TakeOver(t.Context(), s, "b", "n", protocol.Holder{Session: "a",
					Grant: protocol.Grant{Token: h.Token}}); !taken || err != nil {
					t.Fatal(next, taken, err)
				}
				lost(h)
			})
		}
	}
}
