package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/drivertest"
)

// The rules for runs: what the statements that begin, end and change them may meet.

func passable(session string, attempts ...string) (rs []driver.Request) {
	for _, attempt := range attempts {
		r := request(session, attempt)
		r.Passable = true
		rs = append(rs, r)
	}
	return rs
}

func (s *script) joins(rs ...driver.Request) {
	s.Helper()
	if _, outcome, err := s.Enqueue(s.Context(), rs...); err != nil || outcome != driver.Queued {
		s.Fatalf("enqueue: %v, %v", outcome, err)
	}
}

// running is a script in which b has the name as a run of these attempts, and c waits behind it.
func running(t *testing.T, attempts ...string) (*script, driver.Range) {
	t.Helper()
	s := newScript(t)
	for _, id := range []string{"a", "b", "c"} {
		s.session(id, time.Minute)
	}
	h := s.have(request("a", "a1"))
	s.joins(passable("b", attempts...)...)
	s.joins(request("c", "c1"))
	next, err := drivertest.Release(t.Context(), s, h, true)
	if err != nil {
		t.Fatal(err)
	}
	s.went(next, true, attempts...)
	s.sound()
	return s, next[0].Grant.Run
}

func ofRun(token int64) driver.Held { return driver.Held{Name: "n", Session: "b", Token: token} }

// tables are the row of the name and its queue, without times.
func (s *script) tables() (all string) {
	s.Helper()
	if err := s.pool.QueryRow(s.Context(), `SELECT (to_jsonb(l) - 'acquired_at')::text || coalesce((
		SELECT jsonb_agg(to_jsonb(w) - 'enqueued_at' ORDER BY ticket)::text FROM dblock_waiters w), '') FROM dblock_locks l`).Scan(&all); err != nil {
		s.Fatal(err)
	}
	return all
}

// shows checks the attempt of the row, its tokens counted from one, and the places, members of a
// run with their tokens.
func (s *script) shows(from int64, attempt string, first, last int64, places ...string) {
	s.Helper()
	var row string
	var is []string
	if err := s.pool.QueryRow(s.Context(), `SELECT concat_ws(' ', attempt, first_token - $1, last_token - $1) FROM dblock_locks`, from).Scan(&row); err != nil {
		s.Fatal(err)
	}
	if err := s.pool.QueryRow(s.Context(), `SELECT coalesce(array_agg(concat_ws(' ', attempt, CASE WHEN token > 0 THEN token - $1 END) ORDER BY ticket), '{}')
		FROM dblock_waiters`, from).Scan(&is); err != nil {
		s.Fatal(err)
	}
	if want := fmt.Sprint(attempt, " ", first, " ", last); row != want || !slices.Equal(is, places) {
		s.Errorf("the row shows %q, want %q; places %q, want %q", row, want, is, places)
	}
	s.sound()
}

// Broken by taking the places of the members before it although the one that has the lock, so its
// session says, has given its place up.
func TestASettlingThatDoesNothingChangesNothing(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3", "b4")
	if _, err := s.Leave(t.Context(), "b", "n", []string{"b3"}); err != nil {
		t.Fatal(err)
	}
	was := s.tables()
	for _, h := range []driver.Held{ofRun(run.First + 2), ofRun(run.Last + 1), {Name: "n", Session: "a", Token: run.First + 1}} {
		if err := s.Settle(t.Context(), h, true); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%+v: %v", h, err)
		}
		if is := s.tables(); is != was {
			t.Errorf("%+v: it was\n%s\nand is\n%s", h, was, is)
		}
	}
}

// Broken by a limit for the members of both runs, the one that ends and the one that begins.
func TestARunHasAtMost64MembersWhateverItIsGivenBy(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(request("a", "a1"))
	var attempts []string
	for i := range 2 * 70 {
		attempts = append(attempts, fmt.Sprint("b", i))
	}
	s.joins(passable("b", attempts...)...)
	for range 2 { // from a holder, and from a run
		var d handed
		if err := s.handOver(t.Context(), "n", d.toRun(driver.Release(h, true))); err != nil || len(d.next) != 64 {
			t.Fatalf("%d grants, %v", len(d.next), err)
		}
		s.sound()
		s.went(d.next, true, attempts[:64]...)
		h, attempts = ofRun(d.next[0].Grant.Run.Last), attempts[64:]
	}
}

// Broken by leaving out anything that HandOver writes or says.
func TestAHandOverToARunWritesWhatTheGeneralOneWrites(t *testing.T) {
	for what, queue := range map[string][]driver.Request{
		"a run begins":          passable("b", "b2", "b3"),
		"nobody waits":          nil,
		"a single waiter":       passable("c", "c2"),
		"another's behind":      append(passable("c", "c2"), passable("b", "b2")...),
		"another's run":         append(passable("a", "a2", "a3", "a4"), passable("b", "b2")...),
		"another's between":     append(append(passable("c", "c2"), passable("b", "b2")...), passable("c", "c3")...),
		"not passable behind":   append(passable("c", "c2"), request("c", "c3")),
		"not passable, and one": append([]driver.Request{request("c", "c2")}, passable("c", "c3")...),
	} {
		t.Run(what, func(t *testing.T) {
			came := map[string]string{}
			for _, way := range []string{"short", "general"} {
				s, run := running(t, "b1", "member", "last")
				for _, r := range queue {
					s.joins(r)
				}
				listener, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig)
				if err != nil {
					t.Fatal(err)
				}
				defer listener.Close(t.Context())
				if _, err := listener.Exec(t.Context(), `LISTEN dblock_a; LISTEN dblock_b; LISTEN dblock_c`); err != nil {
					t.Fatal(err)
				}
				// c1 is served first, and then what the test is of.
				v := driver.Release(ofRun(run.Last), true)
				for range 2 {
					var d handed
					statements := d.release("nobody", v.Held(), true)
					if way == "short" && (v.Session == "b" || queue != nil) {
						statements = []statement{d.toRun(v)}
					}
					if err := s.handOver(t.Context(), "n", statements...); err != nil || !d.given {
						t.Fatalf("%s: %v, %v", way, d.given, err)
					}
					for i, n := range d.next {
						came[way] += fmt.Sprintf("%s %s contended %v, %d of %d; ", n.Session, n.Attempt, n.Grant.Contended, i, n.Grant.Run.Last-n.Grant.Run.First)
					}
					if len(d.next) == 0 {
						break
					}
					if v.Session != d.next[0].Session || len(queue) == 0 { // a session that hands to itself says nothing
						n, err := listener.WaitForNotification(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						came[way] += "told " + strings.ReplaceAll(n.Payload, strconv.FormatInt(d.next[0].Grant.Token, 10), "TOKEN") + "; "
					}
					s.sound()
					var row string
					if err := s.pool.QueryRow(t.Context(), `SELECT concat_ws(' ', host, thread, attempt, waiters, last_token - first_token, token - last_token) FROM dblock_locks`).Scan(&row); err != nil {
						t.Fatal(err)
					}
					came[way] += row + "\n"
					last := d.next[len(d.next)-1]
					v = driver.Release(driver.Held{Name: "n", Session: last.Session, Token: last.Grant.Token}, true)
				}
			}
			if came["short"] != came["general"] {
				t.Errorf("short:\n%s\ngeneral:\n%s", came["short"], came["general"])
			}
		})
	}
}

// The first run is found by the general hand-over. Broken by sending that for each run, or the one
// for runs where the one for single waiters would do.
func TestTheGeneralHandOverIsNotSentForRuns(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(request("a", "a1"))
	s.joins(passable("b", "b1")...)
	s.joins(passable("a", "a2", "a3")...)
	s.joins(passable("b", "b2")...)
	for i, step := range [][]string{{"b1"}, {"a2", "a3"}, {"b2"}} {
		next, err := drivertest.Release(t.Context(), s, h, true)
		if err != nil {
			t.Fatal(err)
		}
		s.went(next, i < 2, step...)
		if got := s.sent(postgresdb.HandOver); got != (i > 0) {
			t.Errorf("step %d: the general one was sent: %v", i, got)
		}
		if got := s.sent(postgresdb.HandToRun); got != (i > 1) {
			t.Errorf("step %d: the one for runs was sent: %v", i, got)
		}
		h = driver.Held{Name: "n", Session: next[0].Session, Token: next[len(next)-1].Grant.Token}
	}
}

// A clock that is set back makes a name rest that did not when the run began. Broken by leaving the
// members' places to the hand-over: nobody would ever serve them, or take them away.
func TestTheMembersLeaveWithTheirRunThoughTheNameRests(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.exec("UPDATE dblock_locks SET rests_until = dblock_now() + 60000000")
	next, err := drivertest.Release(t.Context(), s, ofRun(run.Last), true)
	if err != nil {
		t.Fatal(err)
	}
	s.went(next, false)
	if n := s.number("SELECT count(*) FROM dblock_waiters WHERE attempt <> 'c1'"); n != 0 {
		t.Errorf("%d members are in the queue", n)
	}
	s.sound()
	s.exec("UPDATE dblock_locks SET rests_until = 0")
	if next, _, err = drivertest.TakeOver(t.Context(), s, "a", "n", driver.Holder{}); err != nil {
		t.Fatal(err)
	}
	s.went(next, false, "c1")
	s.sound()
}

// Rule 3. Broken by a Settle that does not lock the row first: it would settle the run on a member
// that has just left.
func TestSettleSeesTheMemberThatJustLeft(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{Name: "n", Session: "b", Attempts: list([]string{"b2"})}))
	done := s.blocked(func() {
		if err := s.Settle(t.Context(), ofRun(run.First+1), false); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("settled on a member that had left: %v", err)
		}
	})
	s.commit()
	<-done
	s.shows(run.First, "b1", 0, 2, "b3 2", "c1")
	if err := s.Settle(t.Context(), ofRun(run.Last), false); err != nil {
		t.Error(err)
	}
	s.shows(run.First, "b3", 2, 2, "c1")
}

// Broken by a release that knows the holder by the highest token, or by a Settle that lowers that
// one: the name would be handed on under the hold of the member.
func TestAReleaseThatMeetsASettleHandsNothingOn(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(query(postgresdb.Settle, postgresdb.SettleParams{Name: "n", Session: "b", Token: run.First}))
	done := s.blocked(func() {
		if next, err := drivertest.Release(t.Context(), s, ofRun(run.Last), true); !errors.Is(err, driver.ErrNotHeld) || len(next) > 0 {
			t.Errorf("handed on %+v, %v", next, err)
		}
	})
	s.commit()
	<-done
	s.shows(run.First, "b1", 0, 0, "b2", "b3", "c1")
	next, err := drivertest.Release(t.Context(), s, ofRun(run.First), true)
	if err != nil || first(next).Grant.Token <= run.Last {
		t.Errorf("granted %+v after the tokens up to %d, %v", next, run.Last, err)
	}
	s.went(next, true, "b2", "b3")
}

// Broken by a Settle that believes in a run that was just taken over.
func TestSettleFindsThatTheRunWasTakenOver(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(query(postgresdb.RequeueMembers, postgresdb.RequeueMembersParams{Name: "n", Session: "b", Token: run.Last}))
	s.do(query(postgresdb.HandOver, postgresdb.HandOverParams{Name: "n", Session: "b", Token: run.Last}))
	done := s.blocked(func() {
		for token := run.First; token <= run.Last; token++ {
			if err := s.Settle(t.Context(), ofRun(token), false); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("settled on %d: %v", token-run.First, err)
			}
		}
	})
	s.commit()
	<-done
	var row string
	if err := s.pool.QueryRow(t.Context(), "SELECT concat_ws(' ', attempt, last_token - first_token, first_token > $1) FROM dblock_locks", run.Last).Scan(&row); err != nil || row != "b2 1 t" {
		t.Errorf("the row shows %q, %v", row, err)
	}
	s.sound()
}

// Broken by RequeueMembers or HandOver of a run that was settled meanwhile.
func TestABreakThatMeetsASettleTakesNothing(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(query(postgresdb.Settle, postgresdb.SettleParams{Name: "n", Session: "b", Token: run.First}))
	done := s.blocked(func() {
		holder := driver.Holder{Session: "b", Attempt: "b1", Grant: driver.Grant{Token: run.Last}}
		if next, left, err := drivertest.Break(t.Context(), s, "c", "n", holder, driver.Event{Name: "n", Kind: "broken"}); left || len(next) > 0 || err != nil {
			t.Errorf("took %v, handed on %+v, %v", left, next, err)
		}
	})
	s.commit()
	<-done
	s.shows(run.First, "b1", 0, 0, "b2", "b3", "c1")
}

// Broken by showing the next member before the row is locked: it may have left.
func TestARunPassesOverTheMemberThatJustLeft(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{Name: "n", Session: "b", Attempts: list([]string{"b2"})}))
	done := s.blocked(func() {
		next, left, err := s.Vacate(t.Context(), driver.Undo("b", "n", "b1"))
		if err != nil || !left || len(next) > 0 {
			t.Errorf("left %v, handed on %+v, %v", left, next, err)
		}
	})
	s.commit()
	<-done
	s.shows(run.First, "b3", 2, 2, "c1")
}

// Rule 3. Broken by a queue that was read before the row was locked: the run would end before those
// who have just joined, or go past another's place.
func TestARunSeesThoseWhoJoinedWhileItsReleaseWaited(t *testing.T) {
	s, run := running(t, "b1", "b2")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(s.joinTogether(passable("a", "a2", "a3"), new(bool)))
	s.do(s.joinTogether(passable("b", "b3", "b4"), new(bool)))
	done := s.blocked(func() {
		next, err := drivertest.Release(t.Context(), s, ofRun(run.Last), true)
		if err != nil {
			t.Error(err)
		}
		s.went(next, true, "c1")
	})
	s.commit()
	<-done
	held := driver.Held{Name: "n", Session: "c", Token: s.holder().Grant.Token}
	for _, step := range [][]string{{"a", "a2", "a3"}, {"b", "b3", "b4"}} {
		next, err := drivertest.Release(t.Context(), s, held, true)
		if err != nil {
			t.Fatal(err)
		}
		s.went(next, true, step[1:]...)
		s.sound()
		held = driver.Held{Name: "n", Session: step[0], Token: next[0].Grant.Run.Last}
	}
}

// Broken by a hand-over or a JoinTogether that does not wait for the row: of three at once each
// place is granted once, in the order in which the row was had.
func TestTwoReleasesAndThoseWhoJoinAtOnceLoseNobody(t *testing.T) {
	s, run := running(t, "b1", "b2")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	release := func(wins *bool) func() {
		return func() {
			next, err := drivertest.Release(t.Context(), s, ofRun(run.Last), true)
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
			*wins = len(next) == 1 && next[0].Attempt == "c1"
		}
	}
	var one, two bool
	first := s.blocked(release(&one))
	second := s.blocked(func() { s.joins(passable("b", "b3", "b4")...) }, 2)
	third := s.blocked(release(&two), 3)
	s.commit()
	<-first
	<-second
	<-third
	if one == two {
		t.Errorf("handed on by the first: %v, by the second: %v", one, two)
	}
	s.shows(s.holder().Grant.Token, "c1", 0, 0, "b3", "b4")
}
