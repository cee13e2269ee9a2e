package mysql_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// attending is an actor as an application has it: a client attends its engine.
func (s server) attending(t *testing.T) actor {
	t.Helper()
	a := actor{Backend: mysql.New(s.open(t, nil)).Backend, session: id()}
	t.Cleanup(a.Attend("", ttl))
	require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", App: "test", TTL: ttl}))
	return a
}

// pass has the actor hold a name and hand it over the short way.
func (a actor) pass(t *testing.T, s server, name string, to actor) protocol.Held {
	t.Helper()
	held := a.take(t, name)
	attempt := to.enqueue(t, name)
	next, err := sole(drivertest.Release(t.Context(), a, held, true))
	require.NoError(t, err)
	if next.Attempt != attempt || next.Session != to.session || next.Grant.Token <= held.Token ||
		next.Grant.Contended || s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = ?", name) != 0 {
		t.Fatalf("%+v, want %s, and no place left", next, attempt)
	}
	return protocol.Held{Name: name, Session: to.session, Token: next.Grant.Token}
}

// waits waits until a statement waits for a row.
func (s server) waits(t *testing.T, query string) {
	t.Helper()
	var a actor
	eventually(t, query+" to run", func() bool {
		a.conn = s.number(t, "SELECT COALESCE(MAX(id), -1) FROM information_schema.processlist WHERE db = "+
			"DATABASE() AND info LIKE ?", "-- name: "+query+" %")
		return a.conn >= 0
	})
	a.locked = new(atomic.Bool)
	s.blocked(t, a)
}

func TestANameIsPassedOnAndQueuedForByOneStatementEach(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		held := a.pass(t, s, "n", b)
		s.exec(t, "UPDATE dblock_locks SET next_ticket = 7")
		r := a.request("n")
		r.Metadata, r.Lease = `{"k":"ü"}`, time.Hour
		if _, outcome, err := drivertest.Join(t.Context(), a, r); err != nil || outcome != protocol.Queued {
			t.Fatal(outcome, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_waiters w JOIN dblock_locks l ON l.name = w.name"+
			" WHERE w.name = 'n' AND w.ticket = 7 AND w.session_id = ? AND w.host = ? AND w.thread = ? AND "+
			"w.attempt = ? AND w.lease = 3600000000 AND w.min_hold = 0"+
			" AND w.units = 0 AND w.metadata <> '' AND w.enqueued_at > l.acquired_at AND l.waiters = 1 AND "+
			"l.next_ticket = 8",
			r.Session, r.Host, r.Thread, r.Attempt); n != 1 {
			t.Fatal("the place, or the name's row, is not as it should be")
		}
		// What has a time of its own goes the long way.
		next, err := sole(drivertest.Release(t.Context(), b, held, true))
		if err != nil || next.Attempt != r.Attempt || next.Grant.Lease != time.Hour {
			t.Fatal(next, err)
		}
		rests := b.request("n")
		rests.MinHold = time.Minute
		if _, outcome, err := drivertest.Join(t.Context(), b, rests); err != nil || outcome != protocol.Queued {
			t.Fatal(outcome, err)
		}
		next, err = sole(drivertest.Release(t.Context(), a, protocol.Held{Name: "n", Session: a.session,
			Token: next.Grant.Token}, true))
		if err != nil || next.Attempt != rests.Attempt ||
			s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE rests_until > acquired_at") != 1 {
			t.Fatal(next, err)
		}
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), b, protocol.Held{Name: "n", Session: b.session,
			Token: next.Grant.Token}, true)))
		if n := s.number(t, "SELECT waiters FROM dblock_locks") + s.number(t,
			"SELECT COUNT(*) FROM dblock_waiters"); n != 0 {
			t.Fatal("somebody is left in the queue")
		}
	})
}

func TestAShortHandOverLeavesThePlacesBehindAlone(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b, c := s.attending(t), s.attending(t), s.attending(t)
		held := a.take(t, "n")
		first, last := b.enqueue(t, "n"), c.enqueue(t, "n")
		s.exec(t, "UPDATE dblock_locks SET token = ?, first_token = token, last_token = token, asked = 'please', "+
			"metadata = '{}'", farAhead)
		held.Token = farAhead
		next, err := sole(drivertest.Release(t.Context(), a, held, true))
		if err != nil || next.Attempt != first || next.Grant.Token != farAhead+1 || !next.Grant.Contended {
			t.Fatal(next, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE session_id = ? AND attempt = ? AND waiters = 1"+
			" AND first_token = token AND last_token = token AND unseen = 1 AND asked IS NULL AND metadata = '' AND "+
			"expires_at IS NULL", b.session, first); n != 1 {
			t.Fatal("the name's row is not as it should be")
		}
		if claims, err := a.Claims(t.Context(), a.session, 10); err != nil || len(claims) != 0 {
			t.Fatal(claims, err)
		}
		if claims, err := a.Claims(t.Context(), b.session, 10); err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE first_ticket = (SELECT MIN(ticket) FROM "+
			"dblock_waiters)"); n != 1 {
			t.Fatal("the queue does not begin with the place behind")
		}
		if state := c.look(t, "n"); state.Waiters != 1 || len(state.Queued) != 1 || state.Queued[0] != last {
			t.Fatalf("%+v", state)
		}
		// Its own waiter needs no wake-up.
		own := b.enqueue(t, "n")
		require.NoError(t, require.ErrOf(drivertest.Undo(t.Context(), c, c.session, "n", last)))
		next, err = sole(drivertest.Release(t.Context(), b, protocol.Held{Name: "n", Session: b.session,
			Token: farAhead + 1}, true))
		if err != nil || next.Attempt != own || s.number(t, "SELECT unseen FROM dblock_locks") != 0 {
			t.Fatal(next, err)
		}
	})
}

func TestAShortHandOverThatWaitedDecidesByTheRowAsItIsThen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for what, change := range map[string]string{
			"another holder": "UPDATE dblock_locks SET session_id = 'another' WHERE name = ?",
			"another token": "UPDATE dblock_locks SET token = token + 1, first_token = token, last_token = token " +
				"WHERE name = ?",
			"nobody holds it": "UPDATE dblock_locks SET session_id = NULL WHERE name = ?",
		} {
			a, b, name := s.attending(t), s.attending(t), id()
			held := a.take(t, name)
			b.enqueue(t, name)
			changing := s.transaction(t, change, name)
			releasing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
				return sole(drivertest.Release(ctx, a, held, true))
			})
			s.waits(t, "HandToHead")
			require.NoError(t, changing.Commit())
			got := <-releasing
			is(t, got.err, driver.ErrNotHeld)
			assert.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = ?", name), 1, what,
				"the place is gone")
		}
		served, b, name := s.attending(t), s.attending(t), id()
		held := served.take(t, name)
		b.enqueue(t, name)
		behind := s.transaction(t, "UPDATE dblock_locks SET first_ticket = next_ticket WHERE name = ?", name)
		handing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
			return sole(drivertest.Release(ctx, served, held, true))
		})
		s.waits(t, "HandToHead")
		require.NoError(t, behind.Commit())
		if got := <-handing; got.value.Session != "" {
			t.Fatalf("%+v: a name was handed to a place before its queue", got)
		}
		a, name := s.attending(t), id()
		held = a.take(t, name)
		b.enqueue(t, name)
		resting := s.transaction(t, "UPDATE dblock_locks SET rests_until = ? WHERE name = ?", farAhead, name)
		releasing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
			return sole(drivertest.Release(ctx, a, held, true))
		})
		s.waits(t, "HandToHead")
		require.NoError(t, resting.Commit())
		if got := <-releasing; got.err != nil || got.value.Session != "" {
			t.Fatalf("%+v: a name that rests was handed over", got)
		}
	})
}

// The process stands still between the two statements, while the first in the queue leaves.
func TestAShortHandOverToAWaiterThatHasLeft(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a, b := server{s.Through(t, proxy), s.pool}.attending(t), s.attending(t)
		held := a.take(t, "n")
		left, stays := b.enqueue(t, "n"), b.enqueue(t, "n")
		stopped, goOn := stopAt(t, proxy, "-- name: HandToHead", 1)
		releasing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
			return sole(drivertest.Release(ctx, a, held, true))
		})
		soon(t, "the release to be stopped", stopped)
		if _, taken, err := drivertest.Take(t.Context(), b, b.request("m")); err != nil || !taken {
			t.Fatal(taken, err)
		}
		// nothing is locked meanwhile
		require.NoError(t, require.ErrOf(drivertest.Undo(t.Context(), b, b.session, "n", left)))
		goOn()
		if got := <-releasing; got.err != nil || got.value.Attempt != stays {
			t.Fatalf("%+v, want %s", got, stays)
		}
		require.Equal(t, s.number(t, "SELECT waiters FROM dblock_locks WHERE name = 'n'"), 0, "waiters are counted")
	})
}

func TestAShortHandOverPassesNobodyOver(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, dead, b := s.attending(t), s.attending(t), s.attending(t)
		held := a.take(t, "n")
		dead.enqueue(t, "n")
		attempt := b.enqueue(t, "n")
		s.expire(t, dead)
		next, err := sole(drivertest.Release(t.Context(), a, held, true))
		if err != nil || next.Attempt != attempt {
			t.Fatal(next, err)
		}
		require.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_waiters"), 0, "the dead are still in the queue")
		reader := a.reader("n")
		if _, outcome, err := drivertest.Join(t.Context(), a, reader); err != nil || outcome != protocol.Queued {
			t.Fatal(outcome, err)
		}
		next, err = sole(drivertest.Release(t.Context(), b, protocol.Held{Name: "n", Session: b.session,
			Token: next.Grant.Token}, true))
		if err != nil || next.Attempt != reader.Attempt || s.number(t, "SELECT COUNT(*) FROM dblock_shares") != 1 {
			t.Fatal(next, err)
		}
	})
}

func TestAShortPlaceHasItsTicketFromTheLockedRow(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		held := a.pass(t, s, "n", b)
		s.exec(t, "UPDATE dblock_locks SET capacity = 5, next_ticket = 10")
		first := s.transaction(t, "UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1 "+
			"WHERE name = 'n'")
		_, err := first.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, "+
			"metadata, enqueued_at, units, min_hold, members) "+
			"VALUES ('n', 10, ?, 'h', 't', 'first', 0, '', 0, 0, 0, 1)", b.session)
		require.NoError(t, err)
		second := start(t, func(ctx context.Context) (protocol.Outcome, error) {
			_, outcome, err := drivertest.Join(ctx, a, a.request("n"))
			return outcome, err
		})
		s.waits(t, "TakeTicket")
		require.NoError(t, first.Commit())
		if got := <-second; got.err != nil || got.value != protocol.Queued {
			t.Fatalf("%+v, want queued", got)
		}
		if n := s.number(t,
			"SELECT COUNT(*) FROM dblock_locks WHERE waiters = 2 AND next_ticket = 12 AND capacity = 5"); n != 1 {
			t.Fatal("the name's row is not as it should be")
		}
		next, err := sole(drivertest.Release(t.Context(), b, held, true))
		if err != nil || next.Attempt != "first" {
			t.Fatal(next, err)
		}
	})
}

func TestAShortEnqueueThatWaitedTakesWhatWasReleasedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		a.pass(t, s, "n", b)
		freeing := s.transaction(t, "UPDATE dblock_locks SET session_id = NULL WHERE name = 'n'")
		joining := start(t, func(ctx context.Context) (protocol.Outcome, error) {
			_, outcome, err := drivertest.Join(ctx, a, a.request("n"))
			return outcome, err
		})
		s.waits(t, "TakeTicket")
		require.NoError(t, freeing.Commit())
		if got := <-joining; got.err != nil || got.value != protocol.Done ||
			s.number(t, "SELECT COUNT(*) FROM dblock_waiters") != 0 {
			t.Fatalf("%+v, want granted", got)
		}
	})
}

// In an application's transaction a row stays locked for as long as it likes.
func TestTheShortWaysDoNotWaitForLong(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		held := a.pass(t, s, "n", b)
		queued := a.enqueue(t, "n")
		b.pass(t, s, "m", a)
		row := s.transaction(t, "SELECT name FROM dblock_locks FOR UPDATE")
		releasing := start(t, func(ctx context.Context) (protocol.Handoff, error) {
			return sole(drivertest.Release(ctx, b, held, true))
		})
		joining := start(t, func(ctx context.Context) (protocol.Outcome, error) {
			_, outcome, err := drivertest.Join(ctx, b, b.request("m"))
			return outcome, err
		})
		is(t, (<-releasing).err, driver.ErrBusy)
		is(t, (<-joining).err, driver.ErrBusy)
		require.NoError(t, row.Commit())
		next, err := sole(drivertest.Release(t.Context(), b, held, true))
		if err != nil || next.Attempt != queued {
			t.Fatal(next, err)
		}
	})
}

// MariaDB keeps in a file what an UPDATE of several tables sets, if there is text and it is not in
// the first table.
func TestAHandOverKeepsNothingInAFile(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		conn, err := s.open(t, nil).Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		q := mysqldb.New(conn)
		files := func() (n int64) {
			require.NoError(t, conn.QueryRowContext(t.Context(),
				"SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'").Scan(new(string), &n))
			return n
		}
		none := func(what string, do func() (int64, error)) {
			t.Helper()
			before := files()
			n, err := do()
			if require.NoError(t, err); n == 0 {
				t.Fatalf("%s did nothing", what)
			}
			if n := files() - before; n != 0 {
				t.Errorf("%s: %d files", what, n)
			}
		}
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, "n"), false)))
		var token int64
		none("to take", func() (int64, error) {
			token, err = q.TakeRow(t.Context(), mysqldb.TakeRowParams{Name: "n", Session: a.session, Host: "h",
				Thread: "t", Attempt: id()})
			return token, err
		})
		a.enqueue(t, "n") // ticket 1
		none("to hand over", func() (int64, error) {
			token, err = q.HandToHead(t.Context(), mysqldb.HandToHeadParams{
				Name: "n", Holder: a.session, Token: token, Ticket: 1, Members: 1, Session: a.session, Host: "h",
				Thread: "t", Attempt: id(),
			})
			return token, err
		})
		none("to queue", func() (int64, error) {
			return q.TakeTicket(t.Context(), mysqldb.TakeTicketParams{Name: "n", Members: 1})
		})
	})
}

// A short way is there for its round trips. The figures are those in the comments of short.
func TestAShortWayTakesFewerRoundTrips(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.attending(t)
		held := func(name string) protocol.Held { return a.take(t, name) }
		free := func(name string) { does(t, a, protocol.Release(held(name), false, false)) }
		for says, c := range map[string]struct {
			scene          func(name string) protocol.Op
			short, general int64
		}{
			"a take": {func(name string) protocol.Op {
				free(name)
				return protocol.Take{Request: a.request(name)}
			}, 1, 4},
			"a take of a name without row": {func(name string) protocol.Op {
				return protocol.Take{Request: a.request(name)}
			}, 5, 8},
			"a place in a queue": {func(name string) protocol.Op {
				held(name)
				return protocol.Join{Request: a.request(name)}
			}, 4, 5},
			"a release": {func(name string) protocol.Op { return protocol.Release(held(name), false, false) }, 1, 4},
			"a hand-over": {func(name string) protocol.Op {
				h := held(name)
				a.enqueue(t, name)
				return protocol.Release(h, true, false)
			}, 5, 6},
		} {
			var got [2]int64
			for i := range got {
				for round := range 2 { // the first prepares its statements
					op := c.scene(fmt.Sprint(says, i, round))
					if i == 1 {
						op = drivertest.General{Op: op}
					}
					var requests atomic.Int64
					proxy.Watch(func([]byte) { requests.Add(1) })
					does(t, a, op)
					proxy.Watch(nil)
					got[i] = requests.Load()
				}
			}
			if got != [2]int64{c.short, c.general} {
				t.Errorf("%s: %d round trips, the general way %d; want %d and %d", says, got[0], got[1], c.short,
					c.general)
			}
		}
	})
}

// does runs an op that does something.
func does(t *testing.T, a actor, op protocol.Op) {
	t.Helper()
	if result, err := driver.Do(t.Context(), a, op); err != nil || result.Outcome == protocol.Undone {
		t.Fatalf("%+v: %+v, %v", op, result, err)
	}
}
