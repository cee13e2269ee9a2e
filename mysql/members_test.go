package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/drivertest"
	"github.com/dblock-go/dblock/mysql"
)

// joins queues so many requests up, by one call, that may be part of a run. It returns their
// attempts.
func (a actor) joins(t *testing.T, name string, n int) (attempts []string) {
	t.Helper()
	var rs []driver.Request
	for range n {
		r := a.request(name)
		r.Passable = true
		rs, attempts = append(rs, r), append(attempts, r.Attempt)
	}
	if _, outcome, err := a.Enqueue(t.Context(), rs...); err != nil || outcome != driver.Queued {
		t.Fatal(outcome, err)
	}
	return attempts
}

// granted checks that these attempts were granted a name, as one run where they are several, and
// returns what their session holds.
func granted(t *testing.T, next []driver.Handoff, name string, attempts ...string) driver.Held {
	t.Helper()
	var got []string
	for i, n := range next {
		got = append(got, n.Attempt)
		if n.Grant.Token != next[0].Grant.Token+int64(i) || n.Session != next[0].Session {
			t.Fatalf("%+v", next)
		}
	}
	if !slices.Equal(got, attempts) {
		t.Fatalf("%v were granted the name: want %v", got, attempts)
	}
	if len(next) == 0 {
		return driver.Held{}
	}
	last := next[len(next)-1].Grant.Token
	if want := (driver.Range{First: next[0].Grant.Token, Last: last}); len(next) > 1 && next[0].Grant.Run != want {
		t.Fatalf("%+v: want run %+v", next, want)
	}
	return driver.Held{Name: name, Session: next[0].Session, Token: last}
}

// run has b get a run, from a.
func (a actor) run(t *testing.T, name string, b actor, n int) (held driver.Held, attempts []string) {
	t.Helper()
	before := a.take(t, name)
	attempts = b.joins(t, name, n)
	next, err := drivertest.Release(t.Context(), a, before, true)
	must(t, err)
	return granted(t, next, name, attempts...), attempts
}

// sound checks that what is counted of a name is there, and that members have the first places,
// with tokens of the run that holds the name.
func (s server) sound(t *testing.T, name string) {
	t.Helper()
	for what, query := range map[string]string{
		"places are counted that are not there": "SELECT COUNT(*) FROM dblock_locks l WHERE l.name = ? AND l.waiters <> (SELECT COUNT(*) FROM dblock_waiters w WHERE w.name = l.name)",
		"members are not of the run that holds the name": "SELECT COUNT(*) FROM dblock_locks l JOIN dblock_waiters w ON w.name = l.name" +
			" WHERE l.name = ? AND w.token > 0 AND (l.session_id IS NULL OR l.session_id <> w.session_id OR w.token <= l.first_token OR w.token > l.last_token)",
		"members are behind waiters":              "SELECT COUNT(*) FROM dblock_waiters m JOIN dblock_waiters w ON w.name = m.name AND w.ticket < m.ticket WHERE m.name = ? AND m.token > 0 AND w.token = 0",
		"tokens do not rise with the tickets":     "SELECT COUNT(*) FROM dblock_waiters m JOIN dblock_waiters w ON w.name = m.name AND w.ticket < m.ticket WHERE m.name = ? AND m.token > 0 AND w.token >= m.token",
		"a token was granted above the reserved":  "SELECT COUNT(*) FROM dblock_locks WHERE name = ? AND last_token > token",
		"a ticket is above the next one of those": "SELECT COUNT(*) FROM dblock_locks l JOIN dblock_waiters w ON w.name = l.name WHERE l.name = ? AND w.ticket >= l.next_ticket",
	} {
		if n := s.number(t, query, name); n != 0 {
			t.Errorf("%d times %s", n, what)
		}
	}
}

func TestARunIsOfTheQueueAsItIsOnceTheRowIsLocked(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held := a.take(t, "n")
		attempts := b.joins(t, "n", 2)
		changing := s.transaction(t, "UPDATE dblock_locks SET waiters = 2, next_ticket = 4 WHERE name = 'n'")
		_, err := changing.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable, token) VALUES ('n', 3, ?, 'h', 't', 'third', 0, '', 0, 0, 0, 1, 0)", b.session)
		must(t, err)
		_, err = changing.Exec("DELETE FROM dblock_waiters WHERE attempt = ?", attempts[0])
		must(t, err)
		releasing := start(t, func(ctx context.Context) ([]driver.Handoff, error) { return drivertest.Release(ctx, a, held, true) })
		s.blocked(t, a)
		must(t, changing.Commit())
		got := <-releasing
		must(t, got.err)
		granted(t, got.value, "n", attempts[1], "third")
		s.sound(t, "n")
	})
}

func TestAHandOverToARunThatWaitedDecidesByTheRowAsItIsThen(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		hand := func(change func(tx *sql.Tx, name string, attempts []string)) (name string, attempts []string, got outcome[[]driver.Handoff]) {
			a, b := s.attending(t), s.attending(t)
			name = id()
			held := a.take(t, name)
			attempts = b.joins(t, name, 3)
			changing := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = ? FOR UPDATE", name)
			releasing := start(t, func(ctx context.Context) ([]driver.Handoff, error) { return drivertest.Release(ctx, a, held, true) })
			s.waits(t, "HandRun")
			change(changing, name, attempts)
			must(t, changing.Commit())
			return name, attempts, <-releasing
		}
		exec := func(tx *sql.Tx, text string, args ...any) {
			_, err := tx.Exec(text, args...)
			must(t, err)
		}
		for what, change := range map[string]string{
			"another holder":  "UPDATE dblock_locks SET session_id = 'another' WHERE name = ?",
			"another token":   "UPDATE dblock_locks SET token = token + 1, first_token = token, last_token = token WHERE name = ?",
			"nobody holds it": "UPDATE dblock_locks SET session_id = NULL WHERE name = ?",
		} {
			name, _, got := hand(func(tx *sql.Tx, name string, _ []string) { exec(tx, change, name) })
			is(t, got.err, driver.ErrNotHeld)
			if n := s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = ? AND token = 0", name); n != 3 {
				t.Errorf("%s: %d places still wait", what, n)
			}
		}
		_, _, got := hand(func(tx *sql.Tx, name string, _ []string) {
			exec(tx, "UPDATE dblock_locks SET rests_until = ? WHERE name = ?", farAhead, name)
		})
		must(t, got.err)
		granted(t, got.value, "")

		// A place is given up: the run has no hole.
		name, attempts, got := hand(func(tx *sql.Tx, name string, attempts []string) {
			exec(tx, "UPDATE dblock_locks SET waiters = waiters - 1 WHERE name = ?", name)
			exec(tx, "DELETE FROM dblock_waiters WHERE attempt = ?", attempts[1])
		})
		must(t, got.err)
		granted(t, got.value, name, attempts[0], attempts[2])
		s.sound(t, name)

		// Another one joins, at the end: it is behind the run, and counted.
		name, attempts, got = hand(func(tx *sql.Tx, name string, attempts []string) {
			exec(tx, "UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1 WHERE name = ?", name)
			exec(tx, "INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable, token) VALUES (?, 4, 'x', 'h', 't', ?, 0, '', 0, 0, 0, 1, 0)", name, id())
		})
		must(t, got.err)
		granted(t, got.value, name, attempts...)
		s.sound(t, name)
		if n := s.number(t, "SELECT waiters FROM dblock_locks WHERE name = ?", name); n != 3 {
			t.Errorf("%d places are counted", n)
		}
	})
}

// Members have had the lock when the run is released, and their places serve those that queue next.
func TestThePlacesOfARunAreUsedAgain(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		s.exec(t, "INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable, token) VALUES ('m', 1, 'x', 'h', 't', 'neighbour', 0, '', 0, 0, 0, 1, 0)")
		held, attempts := a.run(t, "n", b, 12)
		s.sound(t, "n")
		if n := s.spares(t); n != 1 {
			t.Fatalf("%d spares, want the place of the first", n)
		}
		s.exec(t, "UPDATE dblock_locks SET token = ?, asked = 'please', next_ticket = 100, waiters = waiters, handed = 0", held.Token)
		waiting := a.joins(t, "n", 1) // with the spare
		if n := s.spares(t); n != 0 {
			t.Fatalf("%d spares", n)
		}
		next, err := drivertest.Release(t.Context(), b, held, true)
		must(t, err)
		granted(t, next, "n", waiting...)
		s.sound(t, "n")
		if n := s.spares(t); n != int64(len(attempts)) {
			t.Fatalf("%d spares, want %d", n, len(attempts))
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE session_id = ? AND attempt = ? AND holds = 1 AND waiters = 0 AND handed = 1 AND asked IS NULL", a.session, waiting[0]); n != 1 {
			t.Fatal("the name's row is not as it should be")
		}

		first := s.transaction(t, "UPDATE dblock_locks SET waiters = waiters + 1, next_ticket = next_ticket + 1, capacity = 5 WHERE name = 'n'")
		_, err = first.Exec("INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, min_hold, passable, token) VALUES ('n', 101, ?, 'h', 't', 'first', 0, '', 0, 0, 0, 0, 0)", a.session)
		must(t, err)
		var rs []driver.Request
		for range 3 {
			r := b.request("n")
			r.Metadata, r.Thread, r.Passable = `{"k":"ü<'\\\""}`, "thr'ü\"\\ead", true
			rs = append(rs, r)
		}
		rs[1].Lease, rs[1].MinHold, rs[1].Passable = time.Hour, time.Minute, false
		joining := start(t, func(ctx context.Context) (driver.Outcome, error) {
			_, outcome, err := b.Enqueue(ctx, rs...)
			return outcome, err
		})
		s.waits(t, "JoinRows")
		must(t, first.Commit())
		if got := <-joining; got.err != nil || got.value != driver.Queued {
			t.Fatalf("%+v, want queued", got)
		}
		s.sound(t, "n")
		for i, r := range rs {
			if n := s.number(t, "SELECT COUNT(*) FROM dblock_waiters w JOIN dblock_locks l ON l.name = w.name"+
				" WHERE w.name = 'n' AND w.ticket = ? AND w.session_id = ? AND w.host = ? AND w.thread = ? AND w.attempt = ? AND w.lease = ? AND w.min_hold = ?"+
				" AND w.units = 0 AND w.metadata <> '' AND w.enqueued_at >= l.acquired_at AND w.passable = ? AND w.token = 0 AND l.waiters = 4 AND l.next_ticket = 105 AND l.capacity = 5",
				102+i, b.session, r.Host, r.Thread, r.Attempt, r.Lease.Microseconds(), r.MinHold.Microseconds(), r.Passable); n != 1 {
				t.Errorf("place %d, or the name's row, is not as it should be", i)
			}
		}
		if n := s.spares(t); n != int64(len(attempts)-len(rs)) {
			t.Errorf("%d spares", n)
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = 'm' AND ticket = 1 AND session_id = 'x' AND token = 0"); n != 1 {
			t.Error("the place of a neighbour was changed")
		}
	})
}

// Otherwise a request would be said to wait that has no place.
func TestRequestsWhoseSparesAreGoneDoNotQueue(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.attending(t), s.attending(t)
		held, _ := a.run(t, "n", b, 2)
		b.enqueue(t, "n")
		s.exec(t, "DELETE FROM dblock_waiters WHERE name = ''") // the other's
		next, err := sole(drivertest.Release(t.Context(), b, held, true))
		must(t, err)
		held.Token = next.Grant.Token
		s.exec(t, "DELETE FROM dblock_waiters WHERE name = '' ORDER BY ticket LIMIT 1")
		rs := []driver.Request{b.request("n"), b.request("n")}
		_, _, err = b.Enqueue(t.Context(), rs...)
		is(t, err, driver.ErrUnavailable)
		for _, r := range rs {
			must(t, second(drivertest.Undo(t.Context(), b, b.session, "n", r.Attempt)))
		}
		must(t, second(drivertest.Release(t.Context(), b, held, true)))
		if _, taken, err := a.Take(t.Context(), a.request("n")); err != nil || !taken {
			t.Fatal("the name is not free", taken, err)
		}
		s.sound(t, "n")
	})
}

func TestTheRoundTripsOfARun(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a, b := server{s.Through(t, proxy), s.pool}.attending(t), s.attending(t)
		var requests atomic.Int32
		count := func(what string, most int32, do func()) {
			t.Helper()
			do() // prepares
			requests.Store(0)
			proxy.Watch(func([]byte) { requests.Add(1) })
			do()
			proxy.Watch(func([]byte) {})
			if n := requests.Load(); n > most {
				t.Errorf("%s: %d requests, want %d", what, n, most)
			}
		}
		var held driver.Held
		round := 0
		count("several requests queue", 4, func() {
			round++
			name := fmt.Sprint("queued", round)
			b.take(t, name)
			a.joins(t, name, 4)
		})
		release := func(h driver.Held) (next driver.Held) {
			t.Helper()
			n, err := drivertest.Release(t.Context(), a, h, true)
			must(t, err)
			if len(n) > 0 {
				next = driver.Held{Name: h.Name, Session: n[0].Session, Token: n[len(n)-1].Grant.Token}
			}
			return next
		}
		count("a run queues, is handed to a run, and queues again", 4+3+1, func() { // read, write, KILL
			round++
			name := fmt.Sprint("handed", round)
			held, _ = b.run(t, name, a, 4)
			b.joins(t, name, 3)
			release(held)
			a.joins(t, name, 4)
		})
		count("a run queues, and is settled", 4+7, func() {
			round++
			name := fmt.Sprint("settled", round)
			held, _ = b.run(t, name, a, 4)
			held.Token--
			must(t, a.Settle(t.Context(), held, false))
		})
	})
}

// A process or its connection dies in the middle.
func TestHalfAChangeOfARunIsNone(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const seen = "SELECT CONCAT_WS(' ', attempt, first_token, last_token, token, waiters, next_ticket, holds, handed, acquired_at," +
			" (SELECT GROUP_CONCAT(w.ticket, ' ', w.attempt, ' ', w.token, ' ', w.passable ORDER BY w.ticket) FROM dblock_waiters w WHERE w.name = 'n')) FROM dblock_locks WHERE name = 'n'"
		for _, c := range []struct {
			at   string
			what func(a actor, held driver.Held) error
		}{
			{"AddWaiters", func(a actor, held driver.Held) error {
				_, _, err := a.Enqueue(t.Context(), a.request("n"), a.request("n"))
				return err
			}},
			{"GiveLock", func(a actor, held driver.Held) error { return second(drivertest.Release(t.Context(), a, held, true)) }},
			{"MarkMembers", func(a actor, held driver.Held) error {
				return second(drivertest.Release(t.Context(), a, held, true))
			}},
			{"ResetMembers", func(a actor, held driver.Held) error {
				held.Token--
				return a.Settle(t.Context(), held, true)
			}},
			{"ShowMember", func(a actor, held driver.Held) error {
				held.Token--
				return a.Settle(t.Context(), held, true)
			}},
		} {
			s.exec(t, "DELETE FROM dblock_locks")
			s.exec(t, "DELETE FROM dblock_waiters")
			proxy := dbtest.NewProxy(t, s.Addr(t))
			b := s.actor(t)
			a := actor{Backend: mysql.New(server{s.Through(t, proxy), s.pool}.open(t, nil)).Backend, session: id()}
			must(t, b.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", TTL: ttl}))
			held, _ := b.run(t, "n", a, 3)
			b.joins(t, "n", 3)
			var before, after string
			must(t, s.pool.QueryRow(seen).Scan(&before))
			stopped, goOn := stopAt(t, proxy, "-- name: "+c.at, 1)
			changing := start(t, func(context.Context) (bool, error) { return true, c.what(a, held) })
			soon(t, c.at, stopped)
			go goOn()
			proxy.Cut()
			if got := <-changing; got.err == nil {
				t.Errorf("%s: no error", c.at)
			}
			eventually(t, c.at+" to be undone", func() bool {
				must(t, s.pool.QueryRow(seen).Scan(&after))
				return after == before && s.transactions(t, "") == 0
			})
		}
	})
}

// The places of other names, and whoever has them locked, are nobody's business.
func TestRunsDoNotWaitForTheirNeighbours(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		other := s.actor(t)
		for _, name := range []string{"a", "z"} {
			other.take(t, name)
			other.joins(t, name, 8) // the same tickets: a row that does not match is not waited for
		}
		for _, a := range []actor{s.actor(t), s.attending(t)} {
			name := id()
			b := s.attending(t)
			busy := s.transaction(t, "SELECT * FROM dblock_waiters WHERE name IN ('a', 'z') FOR UPDATE")
			held, _ := b.run(t, name, a, 4)
			held.Token--
			must(t, a.Settle(t.Context(), held, false))
			a.joins(t, name, 3)
			next, err := drivertest.Release(t.Context(), a, held, true)
			must(t, err)
			must(t, second(drivertest.Undo(t.Context(), a, a.session, name, next[0].Attempt)))
			held.Token = next[len(next)-1].Grant.Token
			a.joins(t, name, 2)
			next, err = drivertest.Release(t.Context(), a, held, true)
			must(t, err)
			held.Token = next[len(next)-1].Grant.Token
			b.joins(t, name, 2)
			holder := driver.Holder{Session: a.session, Grant: driver.Grant{Token: held.Token}}
			if _, left, err := drivertest.Break(t.Context(), b, b.session, name, holder, driver.Event{Name: name}); err != nil || !left {
				t.Error(left, err)
			}
			s.sound(t, name)
			must(t, busy.Rollback())
		}
	})
}

// A run is found at the front of its queue, however long that is.
func TestRunsDoNotReadALongQueue(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		const many = 4000
		read := func(what string, do func()) {
			t.Helper()
			reads := func() (n int64) {
				rows, err := a.pool.Query("SHOW SESSION STATUS LIKE 'Handler_read_%'")
				must(t, err)
				defer rows.Close()
				for rows.Next() {
					var name string
					var value int64
					must(t, rows.Scan(&name, &value))
					n += value
				}
				return n
			}
			before := reads()
			do()
			if n := reads() - before; n > many/2 {
				t.Errorf("%s reads %d rows", what, n)
			}
		}
		held, attempts := b.run(t, "n", a, 5)
		for range many / 500 {
			b.joins(t, "n", 500)
		}
		read("to undo a member", func() { must(t, second(drivertest.Undo(t.Context(), a, a.session, "n", attempts[0]))) })
		read("to settle", func() {
			must(t, a.Settle(t.Context(), driver.Held{Name: "n", Session: a.session, Token: held.Token - 2}, false))
		})
		held.Token -= 2
		var next []driver.Handoff
		read("to hand over to a run", func() {
			var err error
			next, err = drivertest.Release(t.Context(), a, held, true)
			must(t, err)
		})
		held = granted(t, next, "n", attempts[3:]...)
		read("to take a run over", func() {
			_, left, err := drivertest.Break(t.Context(), a, a.session, "n", driver.Holder{Session: a.session, Grant: driver.Grant{Token: held.Token}}, driver.Event{Name: "n"})
			if err != nil || !left {
				t.Fatal(left, err)
			}
		})
		read("to release", func() {
			h := a.look(t, "n").Holder
			next, err := drivertest.Release(t.Context(), a, driver.Held{Name: "n", Session: a.session, Token: h.Grant.Token}, true)
			must(t, err)
			if len(next) != driver.MaxRun {
				t.Errorf("%d were granted the name", len(next))
			}
		})
		s.sound(t, "n")
	})
}
