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
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const farAhead = 4_000_000_000_000_000 // a token that no clock reaches

// Broken by a decision by what was read before the row was locked. With a client that attends the
// engine the request waits in turn, and otherwise it tries again.
func TestARequestThatWaitedDecidesByTheRowAsItIsThen(t *testing.T) {
	take := func(b actor, name string) protocol.Op { return protocol.Take{Request: b.request(name)} }
	read := func(b actor, name string) protocol.Op { return protocol.Take{Request: b.reader(name)} }
	join := func(b actor, name string) protocol.Op { return protocol.Join{Request: b.request(name)} }
	const freed = "session_id = NULL, token = 4000000000000000"
	each(t, func(t *testing.T, s server) {
		a, trying, inTurn := s.actor(t), s.actor(t), s.attending(t)
		for _, c := range []struct {
			was, change string
			by          actor
			op          func(b actor, name string) protocol.Op
			done        bool
		}{
			{"held", freed, trying, take, true}, {"held", freed, trying, join, true},
			{"held", freed, inTurn, join, true},
			{"free", "session_id = 'another'", trying, take, false}, {"free", "waiters = 1", trying, take, false},
			{"shared", "waiters = 1", trying, read, false}, {"shared", "session_id = 'another'", trying, read, false},
			{"shared", "rests_until = token + 3600000000", trying, read, false},
			{"shared", "capacity = 7", trying, read, false}, {"shared", "shared_units = capacity", trying, read, false},
		} {
			r := a.request(id())
			if c.was == "shared" {
				r = a.reader(r.Name)
			}
			if held := a.share(t, r); c.was == "free" {
				does(t, a, protocol.Release(held, false, false))
			}
			changing := s.transaction(t, "UPDATE dblock_locks SET "+c.change+" WHERE name = ?", r.Name)
			got := behind(t, s, c.by, changing, c.by.doing(c.op(c.by, r.Name)))
			if got.err != nil || got.value.Done() != c.done || c.done && got.value.Grant.Token != farAhead+1 {
				t.Errorf("%s, and then %s: %+v", c.was, c.change, got)
			}
		}
	})
}

// What an insert has waited for may have been another row of the name, with a grant that came and
// went.
func TestATokenIsMadeWhenTheRowIsThere(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, units := range []int{0, 1} {
			a, name := s.actor(t), id()
			making := s.transaction(t, idleRow, name)
			taking := start(t, a.doing(protocol.Take{Request: a.units(name, units, 2*units)}))
			s.blocked(t, a)
			purged := s.number(t, "SELECT now_us FROM dblock_clock")
			require.NoError(t, require.ErrOf(making.Exec("DELETE FROM dblock_locks WHERE name = ?", name)))
			require.NoError(t, making.Commit())
			if got := <-taking; got.err != nil || got.value.Grant.Token <= purged {
				t.Errorf("%d units: %+v, want a token after %d, which was purged", units, got, purged)
			}
		}
	})
}

// joining is a transaction that has put an attempt at the end of a name's queue.
func (s server) joining(t *testing.T, name, session, attempt string) *sql.Tx {
	t.Helper()
	tx := s.transaction(t, "UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1 "+
		"WHERE name = ?", name)
	_, err := tx.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, "+
		"enqueued_at, units, min_hold, members) SELECT name, next_ticket - 1, ?, 'h', 't', ?, 0, '', 0, 0, 0, 1 "+
		"FROM dblock_locks WHERE name = ?", session, attempt, name)
	require.NoError(t, err)
	return tx
}

func TestAReleaseThatWaitedDecidesByTheRowAsItIsThen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		b := s.attending(t)
		for _, a := range []actor{s.actor(t), s.attending(t)} {
			for _, contended := range []bool{true, false} {
				if !contended && a.locked == nil { // a statement alone does not wait in turn
					continue
				}
				name, attempt := id(), id()
				held := a.take(t, name)
				got := behind(t, s, a, s.joining(t, name, b.session, attempt),
					a.doing(protocol.Release(held, contended, false)))
				next, err := sole(got.value.Next, got.err)
				if err != nil || next.Session != b.session || next.Attempt != attempt ||
					next.Grant.Token <= held.Token {
					t.Fatalf("contended %v: %+v, want the lock to go to %s", contended, got, b.session)
				}
			}
			for change, done := range map[string]bool{
				"session_id = 'another'": false, "session_id = NULL": false,
				"token = token + 1, first_token = token, last_token = token": false,
				"rests_until = 4000000000000000":                             true, // and is not handed over
			} {
				name := id()
				held := a.take(t, name)
				b.enqueue(t, name)
				changing := s.transaction(t, "UPDATE dblock_locks SET "+change+" WHERE name = ?", name)
				got := behind(t, s, a, changing, a.doing(protocol.Release(held, true, false)))
				if got.err != nil || got.value.Done() != done || len(got.value.Next) > 0 ||
					s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = ?", name) != 1 {
					t.Errorf("%s: %+v, or the place is gone", change, got)
				}
			}
		}
	})
}

// The first in line has its ticket and has not committed: the second must not get one before.
func TestTicketsFollowTheOrderOfTheLockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for _, second := range []actor{s.actor(t), s.attending(t)} {
			name, first := id(), id()
			held := a.take(t, name)
			s.exec(t, "UPDATE dblock_locks SET next_ticket = 10 WHERE name = ?", name)
			got := behind(t, s, second, s.joining(t, name, a.session, first),
				second.doing(protocol.Join{Request: second.request(name)}))
			if got.err != nil || got.value.Outcome != protocol.Queued || s.number(t,
				"SELECT COUNT(*) FROM dblock_locks WHERE name = ? AND waiters = 2 AND next_ticket = 12", name) != 1 {
				t.Fatalf("%+v, want queued", got)
			}
			next, err := sole(drivertest.Release(t.Context(), a, held, true))
			if err != nil || next.Attempt != first || !next.Grant.Contended {
				t.Fatalf("%+v, %v: want the first", next, err)
			}
		}
	})
}

func TestAHeartbeatInFlightSavesItsSession(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		s.expire(t, a)
		beating := s.transaction(t, "UPDATE dblock_heartbeats SET expires_at = ? WHERE session_id = ?", farAhead,
			a.session)
		got := behind(t, s, b, beating, func(ctx context.Context) (bool, error) { return b.Expire(ctx, a.session) })
		if got.err != nil || got.value {
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
		for _, text := range []string{"UPDATE dblock_sessions SET dead = 1 WHERE id = ?",
			"DELETE FROM dblock_heartbeats WHERE session_id = ?"} {
			require.NoError(t, require.ErrOf(killing.Exec(text, a.session)))
		}
		require.NoError(t, killing.Commit())
		if got := <-beating; got.err != nil || got.value {
			t.Fatalf("%+v, want dead", got)
		}
		b.buries(t, a)
	})
}

// A restore brings the row of a heartbeat back, or a clock makes an old one good again.
func TestTheDeadStayDeadWhenTheClockGoesBack(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := b.take(t, "n")
		a.enqueue(t, "n")
		s.expire(t, a)
		b.buries(t, a)
		s.exec(t, "INSERT INTO dblock_heartbeats VALUES (?, ?)", a.session, farAhead)
		if next, err := sole(drivertest.Release(t.Context(), b, held, true)); err != nil || next.Session != "" {
			t.Fatalf("%+v %v: granted to the dead", next, err)
		}
		b.buries(t, a)
	})
}

func TestAReclaimThatWaitedLeavesTheNewHolderAlone(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.actor(t), s.actor(t), s.actor(t)
		a.take(t, "n")
		holder := b.look(t, "n").Holder
		s.expire(t, a)
		c.buries(t, a)
		other := s.transaction(t, "UPDATE dblock_locks SET session_id = ?, token = token + 1, first_token = token, "+
			"last_token = token WHERE name = 'n'", c.session)
		got := behind(t, s, b, other, b.doing(protocol.TakeOver(b.session, "n", holder)))
		if got.err != nil || got.value.Done() || b.look(t, "n").Holder.Session != c.session {
			t.Fatalf("%+v, want nothing done", got)
		}
	})
}

func TestASessionThatIsBeingOpenedIsNotBuried(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		b := s.actor(t)
		opening := s.transaction(t, "INSERT INTO dblock_sessions (id, host, pid, app, started_at) "+
			"VALUES ('young', 'h', 1, '', 0)")
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

// In an application's transaction a row stays locked for as long as it likes.
func TestNoTransitionWaitsForARowForLong(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for _, a := range []actor{on(t, s.open(t, nil)), s.attending(t)} {
			r := a.request(id())
			held, queued := a.share(t, r), a.enqueue(t, r.Name)
			row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = ? FOR UPDATE", r.Name)
			var calls []<-chan outcome[protocol.Result]
			for _, op := range []protocol.Op{protocol.Raise{Held: held, Attempt: r.Attempt, To: held.Token + 1},
				protocol.Release(held, true, false), protocol.Join{Request: a.request(r.Name)}} {
				calls = append(calls, start(t, a.doing(op)))
			}
			for _, c := range calls {
				is(t, (<-c).err, driver.ErrBusy)
			}
			require.NoError(t, row.Commit())
			next, err := sole(drivertest.Release(t.Context(), a, held, true))
			if err != nil || next.Attempt != queued {
				t.Fatal(next, err)
			}
		}
	})
}

func TestAHandOverDoesNotWaitForAHeartbeatInFlight(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		// where a plain SELECT in a transaction locks
		a, b := on(t, s.open(t, s.apply(isolation("SERIALIZABLE")))), s.actor(t)
		held := a.take(t, "n")
		attempt := b.enqueue(t, "n")
		s.transaction(t, "UPDATE dblock_heartbeats SET expires_at = expires_at + 1 WHERE session_id = ?", b.session)
		s.transaction(t, "SELECT id FROM dblock_sessions WHERE id = ? LOCK IN SHARE MODE", b.session)
		got := <-start(t, a.doing(protocol.Release(held, true, false)))
		if next, err := sole(got.value.Next, got.err); err != nil || next.Attempt != attempt {
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
		a := s.application(t)
		does(t, a.actor, protocol.Release(a.take(t, "n"), false, false))
		tx, _ := a.begin(t, sql.LevelRepeatableRead)
		late := a
		late.beside = a.then(func() {
			r := a.request("n")
			r.MinHold = time.Hour
			does(t, a.actor, protocol.Release(a.share(t, r), false, false))
		})
		_, err := late.lock(t.Context(), tx, "n", true)
		is(t, err, driver.ErrRetry)
		require.NoError(t, tx.Rollback())
		s.exec(t, "UPDATE dblock_locks SET rests_until = 1")
		tx, _ = a.begin(t, sql.LevelRepeatableRead)
		a.locks(t, tx, "n", true, true)
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
				does(t, a, protocol.Release(a.take(t, name), false, false))
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
	a := on(t, s.open(t, change))
	onSideConn(t, a.Backend)
	return a
}

func TestATakeDoesNotWaitForALockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		does(t, a, protocol.Release(a.take(t, "n"), false, false))
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ"} {
			for _, known := range []bool{false, true} {
				b := on(t, s.open(t, s.apply(isolation(level))))
				if known {
					b = s.acquainted(t, s.apply(isolation(level)))
				}
				row := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'n' FOR UPDATE")
				for _, wait := range []bool{false, true} {
					r := b.request("n")
					r.Patient = wait
					is(t, (<-start(t, b.doing(protocol.Take{Request: r}))).err, driver.ErrBusy)
				}
				// No gap is locked, behind which the rows of other names would wait.
				b.take(t, fmt.Sprint("before ", level, known))
				b.take(t, fmt.Sprint("o after ", level, known))
				require.NoError(t, row.Commit())
			}
		}
	})
}

// Broken by an Extend that does not lock the name's row, or does not ask for the token.
func TestAnExtensionThatWaitedFindsTheLockOfTheNext(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for name, r := range map[string]protocol.Request{"whole": a.request("whole"), "shared": a.reader("shared")} {
			r.Lease = time.Minute
			held := a.share(t, r)
			taking := s.transaction(t, "UPDATE dblock_locks SET token = token + 1, first_token = token, last_token "+
				"= token WHERE name = ?", name)
			require.NoError(t,
				require.ErrOf(taking.Exec("UPDATE dblock_shares SET token = token + 1 WHERE name = ?", name)))
			extend := func() func(context.Context) (protocol.Result, error) {
				return a.doing(protocol.Extend{Held: held, For: time.Hour})
			}
			is(t, behind(t, s, a, taking, extend()).err, driver.ErrNotHeld)
			if left := a.look(t, name).Holder.Left; left > 2*time.Minute {
				t.Errorf("%s: the next has %v left", name, left)
			}
			held.Token++
			if got, err := extend()(t.Context()); err != nil || got.Grant.Lease != time.Hour {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	})
}

// Without the clock being read after the row was locked, a lease that ended meanwhile goes on.
func TestALeaseThatEndsWhileItsExtensionWaitsIsOver(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		r := a.request("n")
		r.Lease = time.Minute
		held := a.share(t, r)
		ending := s.transaction(t, "UPDATE dblock_locks SET expires_at = (SELECT now_us FROM dblock_clock) + 1 "+
			"WHERE name = 'n'")
		extend := a.doing(protocol.Extend{Held: held, For: time.Hour})
		is(t, behind(t, s, a, ending, extend).err, driver.ErrNotHeld)
	})
}
