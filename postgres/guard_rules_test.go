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

// Rule 16: guards of holds, and takeovers of them, in a fixed order. docs/decisions/0013-guards.md
// lists the interleavings.

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// inside is a step of a lock in a transaction.
func (s *script) inside(what string, tx pgx.Tx, h protocol.Held) error {
	s.Helper()
	in := inTx{tx: pgxTx{tx}}
	if what == "Guard" {
		return in.Guard(s.Context(), h, nil)
	}
	return in.Release(s.Context(), h, protocol.Detachment{}, nil)
}

// tryGuard makes the guard of a hold.
func (s *script) tryGuard(h protocol.Held) error {
	return inTx{}.MakeGuard(s.Context(), h, func(ctx context.Context,
		do func(context.Context, driver.Upkeep) error) error {
		up, err := s.Upkeep(ctx, "s")
		if err != nil {
			return err
		}
		defer up.Close()
		return do(ctx, up)
	})
}

func (s *script) makeGuard(h protocol.Held) {
	s.Helper()
	require.NoError(s, s.tryGuard(h))
}

// guardian is a lock that is to be taken over while a transaction guards it: in each of the ways
// that there are.
type guardian struct {
	*script
	held protocol.Held
	by   protocol.Request // the holder's
}

// take takes the lock over.
type take func(g guardian) (bool, error)

var takes = map[string]take{
	"reclaim from the dead": func(g guardian) (bool, error) {
		if _, err := g.pool.Exec(g.Context(),
			"UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = 'a'"); err != nil {
			return false, err
		}
		_, taken, err := drivertest.TakeOver(g.Context(), g, "b", "n", protocol.Holder{Session: "a", Units: g.by.Units,
			Grant: protocol.Grant{Token: g.held.Token}})
		return taken, err
	},
	"reclaim of a fixed lease": func(g guardian) (bool, error) {
		for _, table := range []string{"dblock_locks", "dblock_shares"} {
			if _, err := g.pool.Exec(g.Context(),
				"UPDATE "+table+
					" SET expires_at = 1 WHERE attempt = 'a1' AND expires_at IS DISTINCT FROM 1"); err != nil {
				return false, err
			}
		}
		_, taken, err := drivertest.TakeOver(g.Context(), g, "b", "n", protocol.Holder{Session: "a", Units: g.by.Units,
			Grant: protocol.Grant{Token: g.held.Token, Lease: -1}})
		return taken, err
	},
	"theft": func(g guardian) (bool, error) {
		_, taken, err := drivertest.Break(g.Context(), g, "b", "n", protocol.Holder{Session: "a", Attempt: "a1",
			Units: g.by.Units, Grant: protocol.Grant{Token: g.held.Token}}, protocol.Event{})
		return taken, err
	},
	"return of the same owner": func(g guardian) (bool, error) {
		back := protocol.Request{Name: "n", Session: "b", Host: "h", Thread: "a1", Attempt: "b1", Patient: true}
		result, err := driver.Do(g.Context(), g, protocol.Reenter{Request: back})
		return result.Done(), err
	},
}

// eachTake runs a test for each kind of takeover, of the whole name and of a share.
func eachTake(t *testing.T, test func(t *testing.T, g guardian, take take)) {
	for name, take := range takes {
		for kind, r := range map[string]protocol.Request{"whole": request("a", "a1"), "share": reader("a", "a1")} {
			if kind == "share" && name == "return of the same owner" { // a share is not entered again
				continue
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := scriptOf(t, "a", "b")
				test(t, guardian{script: s, held: s.have(r), by: r}, take)
			})
		}
	}
}

// stands checks that the hold is as it was.
func (g guardian) stands() {
	g.Helper()
	assert.Equal(g, g.number("SELECT count(*) FROM dblock_holders WHERE session_id = 'a' AND token = $1", g.held.Token),
		1, "it is not held any more")
	g.sound()
}

// Broken by leaving SeizeGuard out, or SKIP LOCKED: the guard is a share lock on its row. Broken
// also by the short hand-over for a takeover: it passes no guard.
func TestNoTakeoverPassesAGuardedTransaction(t *testing.T) {
	for _, waits := range []bool{false, true} {
		eachTake(t, func(t *testing.T, g guardian, take take) {
			if waits {
				g.enqueue(request("b", "waiter"))
			}
			g.makeGuard(g.held)
			g.begin()
			require.NoError(t, g.inside("Guard", g.tx, g.held))
			done := make(chan error, 1)
			go func() { done <- assert.ErrOf(take(g)) }()
			select {
			case err := <-done:
				assert.ErrorIs(t, err, driver.ErrBusy)
				assert.ErrorIs(t, err, driver.ErrGuarded)
			case <-time.After(8 * time.Second): // less than the engine's patience here
				t.Error("waits behind the guarded transaction")
			}
			g.stands()
			g.commit()
			if taken, err := take(g); !taken || err != nil {
				t.Errorf("after the guarded transaction: %v, %v", taken, err)
			}
			g.sound()
		})
	}
}

// A takeover is between its look for guards and its commit. Broken by a guard that is made without
// the lock of the name's row: it is made, and the hold still stands, and the guarded transaction
// can commit after the takeover.
func TestNoGuardIsMadeUnderATakeover(t *testing.T) {
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			s := scriptOf(t, "a", "b")
			h := s.have(request("a", "a1"))
			s.begin()
			s.do(query(postgresdb.LockRow, "n"))
			s.do(query(postgresdb.SeizeGuard, "a1"))
			tx := s.snapshot(level)
			assert.ErrorIs(t, s.tryGuard(h), driver.ErrBusy, "made under a takeover")
			assert.ErrorIs(t, s.inside("Guard", tx, h), driver.ErrRetry, "guarded with no guard")
			s.do(query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{Name: "n", Session: "a", Token: h.Token}))
			s.commit()
			assert.ErrorIs(t, s.tryGuard(h), driver.ErrNotHeld, "made after the takeover")
			if err := s.inside("Guard", tx, h); !errors.Is(err, driver.ErrRetry) && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("guarded after the takeover: %v", err)
			}
		})
	}
}

// A guard is being made. Broken by a takeover that looks for guards before it has the name's row,
// or in the same statement: it does not see the one that it has waited for.
func TestATakeoverSeesTheGuardThatItWaitedFor(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		tx := g.snapshot(pgx.ReadCommitted)
		g.begin()
		g.do(query(postgresdb.LockRow, "n"))
		g.do(query(postgresdb.MakeGuard, postgresdb.MakeGuardParams{Name: "n", Session: "a", Token: g.held.Token}))
		done := g.blockedTake(take, func() {
			g.commit()
			assert.NoError(t,
				assert.ErrOf(tx.Exec(t.Context(), "SELECT 1 FROM dblock_guards WHERE attempt = 'a1' FOR SHARE")))
		})
		// The share lock may come before the takeover's look, or after: in both cases there is one
		// of the two.
		switch {
		case done == nil:
			assert.ErrorIs(t, g.inside("Guard", tx, g.held), driver.ErrNotHeld, "taken over, and guarded")
			if n := g.number("SELECT takeovers FROM dblock_guards WHERE attempt = 'a1'"); n != 1 {
				t.Errorf("the takeover has written %d times", n)
			}
		case errors.Is(done, driver.ErrGuarded):
			g.stands()
		default:
			t.Error(done)
		}
	})
}

// blockedTake runs a takeover until it waits, then goOn, and returns what came of it.
func (g guardian) blockedTake(take take, goOn func()) (err error) {
	g.Helper()
	var taken bool
	done := g.blocked(func() { taken, err = take(g) })
	goOn()
	<-done
	if err == nil && !taken {
		err = errors.New("not taken")
	}
	return err
}

// A takeover has the guard's row, and Guard waits for it. Broken by a takeover that does not write
// what Guard looks at.
func TestAGuardThatWaitedForATakeoverIsRefused(t *testing.T) {
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			s := scriptOf(t, "a", "b")
			h := s.have(request("a", "a1"))
			s.makeGuard(h)
			tx := s.snapshot(level)
			s.begin()
			s.do(query(postgresdb.LockRow, "n"))
			s.do(query(postgresdb.SeizeGuard, "a1"))
			s.do(query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{Name: "n", Session: "a", Token: h.Token}))
			s.behind(func() {
				err := s.inside("Guard", tx, h)
				switch {
				case level == pgx.ReadCommitted && !errors.Is(err, driver.ErrNotHeld):
					t.Errorf("guarded: %v", err)
				case level != pgx.ReadCommitted && (!errors.Is(err, driver.ErrRetry) ||
					pgserver.State(err) != pgserver.SerializationFailure):
					t.Errorf("guarded with a snapshot from before: %v", err)
				}
			})
			assert.NoError(t, assert.ErrOf(tx.Exec(t.Context(), "SELECT 1")),
				"the transaction is not usable afterwards")
		})
	}
}

// Broken by a Guard that locks first and then finds out that the lock is lost: its row stays locked
// with the transaction.
func TestAGuardThatFailedKeepsNobodyFromWhatTheDeadHad(t *testing.T) {
	eachTake(t, func(t *testing.T, g guardian, take take) {
		g.makeGuard(g.held)
		for _, s := range []string{"UPDATE dblock_sessions SET dead = true WHERE id = 'a'",
			"DELETE FROM dblock_heartbeats WHERE session_id = 'a'"} {
			require.NoError(t, require.ErrOf(g.pool.Exec(t.Context(), s)))
		}
		tx := g.snapshot(pgx.ReadCommitted)
		require.ErrorIs(t, g.inside("Guard", tx, g.held), driver.ErrNotHeld)
		if taken, err := take(g); !taken || err != nil {
			t.Errorf("taken over: %v, %v", taken, err)
		}
	})
}

// Broken by a guard that is known by the token.
func TestAGuardOutlivesAnUpgradeAndADowngrade(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(reader("a", "a1"))
	s.makeGuard(h)
	s.begin()
	require.NoError(t, s.inside("Guard", s.tx, h))
	g, upgraded, err := s.upgrade(h, "a1")
	if !upgraded || err != nil {
		t.Fatal(upgraded, err)
	}
	h.Token = g.Token
	h.Shared = false
	whole := guardian{script: s, held: h, by: request("a", "a1")}
	assert.ErrorIs(t, assert.ErrOf(takes["theft"](whole)), driver.ErrGuarded, "after the upgrade")
	require.NoError(t, require.ErrOf(s.downgrade(h)))
	assert.ErrorIs(t, assert.ErrOf(takes["theft"](guardian{script: s, held: h, by: reader("a", "a1")})),
		driver.ErrGuarded, "after the downgrade")
	s.commit()
	if taken, err := takes["theft"](guardian{script: s, held: h, by: reader("a", "a1")}); !taken || err != nil {
		t.Errorf("after the guarded transaction: %v, %v", taken, err)
	}
}

// Broken by a release that touches the guard's row.
func TestAReleaseDoesNotWaitForAGuardedTransaction(t *testing.T) {
	for _, r := range []protocol.Request{request("a", "a1"), reader("a", "a1")} {
		s := scriptOf(t, "a")
		h := s.have(r)
		s.makeGuard(h)
		s.begin()
		require.NoError(t, s.inside("Guard", s.tx, h))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		assert.NoError(t, assert.ErrOf(drivertest.Release(ctx, s, h, true)))
		if n, err := s.DropGuards(ctx, 10); n != 0 || err != nil {
			t.Errorf("deleted under a transaction: %d, %v", n, err)
		}
		cancel()
		s.commit()
		if n, err := s.DropGuards(t.Context(), 10); n != 1 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
	}
}

// Broken by a DropGuards that goes by the session, or by the name alone.
func TestGuardsStayForAsLongAsTheirHolds(t *testing.T) {
	s := scriptOf(t, "a")
	old := s.have(request("a", "a1"))
	s.makeGuard(old)
	s.release(old)
	h := s.have(request("a", "a2"))
	s.makeGuard(h)
	o := reader("a", "a3")
	o.Name = "o"
	s.makeGuard(s.have(o))
	for _, want := range []int{1, 0} {
		if n, err := s.DropGuards(t.Context(), 10); n != want || err != nil {
			t.Errorf("deleted %d, %v, want %d", n, err, want)
		}
	}
	assert.Equal(t, s.number("SELECT count(*) FROM dblock_guards WHERE attempt IN ('a2', 'a3')"), 2,
		"guards of 2 holds")
}

// A savepoint that is rolled back takes the guard with it, as Guard says.
func TestAGuardInASavepointGoesWithIt(t *testing.T) {
	s := scriptOf(t, "a", "b")
	g := guardian{script: s, held: s.have(request("a", "a1")), by: request("a", "a1")}
	s.makeGuard(g.held)
	s.begin()
	s.do(statement{sql: "SAVEPOINT theirs"})
	require.NoError(t, s.inside("Guard", s.tx, g.held))
	s.do(statement{sql: "ROLLBACK TO SAVEPOINT theirs"})
	if taken, err := takes["theft"](g); !taken || err != nil {
		t.Errorf("taken over: %v, %v", taken, err)
	}
}
