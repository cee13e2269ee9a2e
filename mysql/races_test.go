package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

const farAhead = 4_000_000_000_000_000 // a token that no clock reaches

func TestATakeThatWaitedDecidesByTheRowAsItIsThen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		freeing := s.transaction(t, "UPDATE dblock_locks SET session_id = NULL, token = ? WHERE name = 'n'", farAhead)
		taking := start(t, func(ctx context.Context) (protocol.Grant, error) {
			grant, _, err := drivertest.Take(ctx, b, b.request("n"))
			return grant, err
		})
		s.blocked(t, b)
		require.NoError(t, freeing.Commit())
		if got := <-taking; got.err != nil || got.value.Token != farAhead+1 {
			t.Fatalf("%+v, want the token after the row's", got)
		}

		locking := s.transaction(t, "UPDATE dblock_locks SET session_id = ?, token = token + 1, first_token = "+
			"token, last_token = token WHERE name = 'n'", a.session)
		taking = start(t, func(ctx context.Context) (protocol.Grant, error) {
			grant, taken, err := drivertest.Take(ctx, b, b.request("n"))
			if taken {
				t.Error("taken from its holder")
			}
			return grant, err
		})
		s.blocked(t, b)
		require.NoError(t, locking.Commit())
		if got := <-taking; got.err != nil {
			t.Fatal(got.err)
		}
		if h := b.look(t, "n").Holder; h.Session != a.session || h.Grant.Token != farAhead+2 {
			t.Fatalf("the holder is %+v", h)
		}
	})
}

// What an insert has waited for may have been another row of the name, with a grant that came and
// went.
func TestATokenIsMadeWhenTheRowIsThere(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, units := range []int{0, 1} {
			a, name := s.actor(t), id()
			making := s.transaction(t, "INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata) "+
				"VALUES (?, '', '', 1, 1, '')", name)
			taking := start(t, func(ctx context.Context) (protocol.Grant, error) {
				r := a.request(name)
				r.Units, r.Of = units, 2*units
				grant, _, err := drivertest.Take(ctx, a, r)
				return grant, err
			})
			s.blocked(t, a)
			purged := s.number(t, "SELECT now_us FROM dblock_clock")
			_, err := making.Exec("DELETE FROM dblock_locks WHERE name = ?", name)
			require.NoError(t, err)
			require.NoError(t, making.Commit())
			if got := <-taking; got.err != nil || got.value.Token <= purged {
				t.Errorf("%d units: %+v, want a token after %d, which was purged", units, got, purged)
			}
		}
	})
}

func TestATakeDoesNotOvertakeAWaiterThatCameWhileItWaited(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, "n"), false)))
		joining := s.transaction(t, "UPDATE dblock_locks SET waiters = 1 WHERE name = 'n'")
		taking := start(t, func(ctx context.Context) (bool, error) {
			_, taken, err := drivertest.Take(ctx, b, b.request("n"))
			return taken, err
		})
		s.blocked(t, b)
		require.NoError(t, joining.Commit())
		if got := <-taking; got.err != nil || got.value {
			t.Fatalf("%+v, want not taken", got)
		}
	})
}

func TestAReleaseThatWaitedHandsOverToTheWaiterThatCameMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, contended := range []bool{false, true} {
			a, b := s.actor(t), s.actor(t)
			name := id()
			held := a.take(t, name)
			attempt := id()
			joining := s.transaction(t, "UPDATE dblock_locks SET waiters = 1, next_ticket = 2 WHERE name = ?", name)
			_, err := joining.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, "+
				"lease, metadata, enqueued_at, units, min_hold, members) VALUES (?, 1, ?, 'h', 't', ?, 0, '', 0, 0, "+
				"0, 1)", name, b.session, attempt)
			require.NoError(t, err)
			releasing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
				return sole(drivertest.Release(ctx, a, held, contended))
			})
			s.blocked(t, a)
			require.NoError(t, joining.Commit())
			got := <-releasing
			if got.err != nil || got.value.Session != b.session || got.value.Attempt != attempt ||
				got.value.Grant.Token <= held.Token {
				t.Fatalf("contended %v: %+v, want the lock to go to %s", contended, got, b.session)
			}
		}
	})
}

func TestAnEnqueueThatWaitedTakesWhatWasReleasedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		freeing := s.transaction(t, "UPDATE dblock_locks SET session_id = NULL WHERE name = 'n'")
		joining := start(t, func(ctx context.Context) (protocol.Outcome, error) {
			_, outcome, err := drivertest.Join(ctx, b, b.request("n"))
			return outcome, err
		})
		s.blocked(t, b)
		require.NoError(t, freeing.Commit())
		if got := <-joining; got.err != nil || got.value != protocol.Done {
			t.Fatalf("%+v, want granted", got)
		}
	})
}

func TestTicketsFollowTheOrderOfTheLockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		held := a.take(t, "n")
		// The first in line has its ticket and has not committed: the second must not get one
		// before.
		first := s.transaction(t, "UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1 "+
			"WHERE name = 'n'")
		second := start(t, func(ctx context.Context) (protocol.Outcome, error) {
			_, outcome, err := drivertest.Join(ctx, c, c.request("n"))
			return outcome, err
		})
		s.blocked(t, c)
		_, err := first.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, "+
			"metadata, enqueued_at, units, min_hold, members) VALUES ('n', 1, ?, 'h', 't', 'first', 0, '', 0, 0, 0, 1)",
			b.session)
		require.NoError(t, err)
		require.NoError(t, first.Commit())
		if got := <-second; got.err != nil || got.value != protocol.Queued {
			t.Fatalf("%+v, want queued", got)
		}
		next, err := sole(drivertest.Release(t.Context(), a, held, true))
		require.NoError(t, err)
		if next.Attempt != "first" || !next.Grant.Contended {
			t.Fatalf("%+v, want the first", next)
		}
	})
}

func TestAHeartbeatInFlightSavesItsSession(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		s.expire(t, a)
		beating := s.transaction(t, "UPDATE dblock_heartbeats SET expires_at = ? WHERE session_id = ?", farAhead,
			a.session)
		expiring := start(t, func(ctx context.Context) (bool, error) { return b.Expire(ctx, a.session) })
		s.blocked(t, b)
		require.NoError(t, beating.Commit())
		if got := <-expiring; got.err != nil || got.value {
			t.Fatalf("%+v, want alive", got)
		}
	})
}

func TestAHeartbeatThatComesTooLateFindsItselfDead(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		u, err := a.Upkeep(t.Context(), "s") // the only connection there is
		require.NoError(t, err)
		defer u.Close()
		s.expire(t, a)
		killing := s.transaction(t, "SELECT expires_at FROM dblock_heartbeats WHERE session_id = ? FOR UPDATE",
			a.session)
		beating := start(t, func(ctx context.Context) (bool, error) { return u.Heartbeat(ctx, a.session, ttl) })
		s.blocked(t, a)
		_, err = killing.Exec("UPDATE dblock_sessions SET dead = 1 WHERE id = ?", a.session)
		require.NoError(t, err)
		_, err = killing.Exec("DELETE FROM dblock_heartbeats WHERE session_id = ?", a.session)
		require.NoError(t, err)
		require.NoError(t, killing.Commit())
		if got := <-beating; got.err != nil || got.value {
			t.Fatalf("%+v, want dead", got)
		}
		if dead, err := b.Expire(t.Context(), a.session); err != nil || !dead {
			t.Fatal(dead, err)
		}
	})
}

func TestTheDeadStayDeadWhenTheClockGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := b.take(t, "n")
		a.enqueue(t, "n")
		s.expire(t, a)
		if dead, err := b.Expire(t.Context(), a.session); err != nil || !dead {
			t.Fatal(dead, err)
		}
		u, err := s.engine(t).Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer u.Close()
		if alive, err := u.Heartbeat(t.Context(), a.session, ttl); err != nil || alive {
			t.Fatal("a heartbeat revived the dead", err)
		}
		// A restore that brings the row back, or a clock that makes an old one good again.
		s.exec(t, "INSERT INTO dblock_heartbeats VALUES (?, ?)", a.session, farAhead)
		if next, err := sole(drivertest.Release(t.Context(), b, held, true)); err != nil || next.Session != "" {
			t.Fatalf("%+v %v: granted to the dead", next, err)
		}
		if dead, err := b.Expire(t.Context(), a.session); err != nil || !dead {
			t.Fatal("alive again", err)
		}
	})
}

func TestAReclaimThatWaitedLeavesTheNewHolderAlone(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		a.take(t, "n")
		holder := b.look(t, "n").Holder
		s.expire(t, a)
		if dead, err := c.Expire(t.Context(), a.session); err != nil || !dead {
			t.Fatal(dead, err)
		}
		other := s.transaction(t, "UPDATE dblock_locks SET session_id = ?, token = token + 1, first_token = token, "+
			"last_token = token WHERE name = 'n'", c.session)
		reclaiming := start(t, func(ctx context.Context) (bool, error) {
			_, taken, err := drivertest.TakeOver(ctx, b, b.session, "n", holder)
			return taken, err
		})
		s.blocked(t, b)
		require.NoError(t, other.Commit())
		if got := <-reclaiming; got.err != nil || got.value {
			t.Fatalf("%+v, want nothing done", got)
		}
		if h := b.look(t, "n").Holder; h.Session != c.session {
			t.Fatalf("the holder is %+v", h)
		}
	})
}

func TestASessionThatIsBeingOpenedIsNotBuried(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		b := s.actor(t)
		opening := s.transaction(t, "INSERT INTO dblock_sessions VALUES ('young', 'h', 1, '', 0, 0)")
		_, err := opening.Exec("INSERT INTO dblock_heartbeats VALUES ('young', ?)", farAhead)
		require.NoError(t, err)
		got := <-start(t, func(ctx context.Context) (bool, error) { return b.Expire(ctx, "young") })
		is(t, got.err, driver.ErrBusy)
		require.NoError(t, opening.Commit())
		if dead, err := b.Expire(t.Context(), "young"); err != nil || dead {
			t.Fatal(dead, err)
		}
	})
}

func TestWhatAHolderWritesDoesNotWaitForALockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := actor{Backend: s.engine(t), session: id()}
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		r := a.request("n")
		whole := a.share(t, r)
		row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'n' FOR UPDATE")
		for what, do := range map[string]func(ctx context.Context) error{
			"Raise": func(ctx context.Context) error {
				return require.ErrOf(a.raise(ctx, whole, r.Attempt, whole.Token+1))
			},
			"Release": func(ctx context.Context) error {
				return require.ErrOf(drivertest.Release(ctx, a, whole, true))
			},
		} {
			got := <-start(t, func(ctx context.Context) (string, error) { return what, do(ctx) })
			assert.ErrorIs(t, got.err, driver.ErrBusy, what)
		}
		require.NoError(t, row.Commit())
	})
}

func TestAHandOverDoesNotWaitForAHeartbeatInFlight(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, s.apply(isolation("SERIALIZABLE"))) // where a plain SELECT in a transaction locks
		a, b := actor{Backend: mysql.New(pool).Backend, session: id()}, s.actor(t)
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		held := a.take(t, "n")
		attempt := b.enqueue(t, "n")
		s.transaction(t, "UPDATE dblock_heartbeats SET expires_at = expires_at + 1 WHERE session_id = ?", b.session)
		s.transaction(t, "SELECT id FROM dblock_sessions WHERE id = ? LOCK IN SHARE MODE", b.session)
		got := <-start(t, func(ctx context.Context) (protocol.Handoff, error) {
			return sole(drivertest.Release(ctx, a, held, true))
		})
		if got.err != nil || got.value.Attempt != attempt {
			t.Fatalf("%+v, want %s", got, attempt)
		}
	})
}

// At REPEATABLE READ each of two would lock the gap where the row is missing, and wait for the
// other to fill it.
func TestTwoThatBuryTheSameSessionDoNotDeadlock(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		actors := []actor{s.actor(t), s.actor(t), s.actor(t)}
		for range 30 {
			gone := id()
			burying := make([]<-chan outcome[bool], len(actors))
			for i, a := range actors {
				burying[i] = start(t, func(ctx context.Context) (bool, error) { return a.Expire(ctx, gone) })
			}
			for _, b := range burying {
				if got := <-b; got.err != nil && !errors.Is(got.err, driver.ErrBusy) {
					t.Fatal(got.err)
				}
			}
		}
	})
}

// Between LockTx looking and locking, somebody else takes the name with MinHold and releases it.
func TestLockTxDoesNotTakeANameThatRestsByTheTimeItIsLocked(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, nil)
		e := mysql.New(pool)
		a := actor{Backend: e.Backend, session: id()}
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, "n"), false)))
		beside := onSideConn(t, e.Backend)
		lock := func(tx *sql.Tx, onSideConn driver.OnSideConn) (bool, error) {
			_, locked, err := e.In(tx).Lock(t.Context(), "n", func(string, int, any) bool { return false },
				true, onSideConn)
			return locked, err
		}
		tx, err := pool.Begin()
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = lock(tx, func(ctx context.Context, do func(context.Context, driver.Upkeep) error) error {
			err := beside(ctx, do)
			r := a.request("n")
			r.MinHold = time.Hour
			grant, taken, failed := drivertest.Take(ctx, a, r)
			if require.NoError(t, failed); !taken {
				t.Error("not taken")
			}
			require.NoError(t, require.ErrOf(drivertest.Release(ctx, a, protocol.Held{Name: "n", Session: a.session,
				Token: grant.Token}, false)))
			return err
		})
		is(t, err, driver.ErrRetry)
		require.NoError(t, tx.Rollback())
		s.exec(t, "UPDATE dblock_locks SET rests_until = 1")
		tx, err = pool.Begin()
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if locked, err := lock(tx, beside); err != nil || !locked {
			t.Fatal("a name that has rested was not locked", err)
		}
	})
}

// An engine knows its server from its first reserved connection on. Before that it takes a name on
// MariaDB as on MySQL.
func TestATakeTakesOnlyWhatIsFree(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, known := range []bool{false, true} {
			a := s.actor(t)
			if known {
				a = s.acquainted(t, nil)
			}
			for what, change := range map[string]string{
				"held":       "session_id = 'another'",
				"waited for": "waiters = 1",
				"shared":     "shared_units = 1, capacity = 2",
				"resting":    "rests_until = 4000000000000000",
			} {
				name := fmt.Sprint(what, known)
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, name), false)))
				s.exec(t, "UPDATE dblock_locks SET "+change+" WHERE name = ?", name)
				if _, taken, err := drivertest.Take(t.Context(), a, a.request(name)); err != nil || taken {
					t.Errorf("%s: %v %v", name, taken, err)
				}
			}
		}
	})
}

// acquainted is an actor that knows its server, over a pool with such settings.
func (s server) acquainted(t *testing.T, change func(*sqldriver.Config)) actor {
	t.Helper()
	a := actor{Backend: mysql.New(s.open(t, change)).Backend, session: id()}
	onSideConn(t, a.Backend)
	require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", App: "test", TTL: ttl}))
	return a
}

func TestATakeWritesTheWholeRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, a := range []actor{s.actor(t), s.acquainted(t, variable("time_zone", "'+05:00'"))} {
			for _, timed := range []bool{false, true} {
				r := a.request(id())
				r.Metadata = `{"k":"ü"}`
				if timed {
					r.Lease, r.MinHold = time.Hour, time.Minute
				}
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, r.Name), false)))
				s.exec(t, "UPDATE dblock_locks SET token = ?, first_token = 1, last_token = 1 WHERE name = ?", farAhead,
					r.Name)
				grant, taken, err := drivertest.Take(t.Context(), a, r)
				if err != nil || !taken || grant.Token != farAhead+1 || grant.Lease != r.Lease {
					t.Fatal(grant, taken, err)
				}
				const minute = 60_000_000
				if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks CROSS JOIN dblock_clock WHERE name = ? AND "+
					"session_id = ? AND host = ? AND thread = ? AND attempt = ?"+
					" AND metadata <> '' AND token = ? AND first_token = token AND last_token = token AND "+
					"acquired_at BETWEEN now_us - ? AND now_us"+
					" AND COALESCE(expires_at - acquired_at, 0) = ? AND IF(rests_until = 0, 0, rests_until - "+
					"acquired_at) = ?",
					r.Name, r.Session, r.Host, r.Thread, r.Attempt, farAhead+1, minute, r.Lease.Microseconds(),
					r.MinHold.Microseconds()); n != 1 {
					t.Errorf("timed %v: the name's row is not as it should be", timed)
				}
			}
		}
	})
}

func TestATakeDoesNotWaitForALockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, "n"), false)))
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ"} {
			for _, known := range []bool{false, true} {
				b := actor{Backend: mysql.New(s.open(t, s.apply(isolation(level)))).Backend, session: a.session}
				if known {
					b = s.acquainted(t, s.apply(isolation(level)))
				}
				row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'n' FOR UPDATE")
				for _, wait := range []bool{false, true} {
					r := b.request("n")
					r.Patient = wait
					got := <-start(t, func(ctx context.Context) (bool, error) {
						_, taken, err := drivertest.Take(ctx, b, r)
						return taken, err
					})
					is(t, got.err, driver.ErrBusy)
				}
				// No gap is locked, behind which the rows of other names would wait.
				b.take(t, fmt.Sprint("before ", level, known))
				b.take(t, fmt.Sprint("o after ", level, known))
				require.NoError(t, row.Commit())
			}
		}
	})
}
