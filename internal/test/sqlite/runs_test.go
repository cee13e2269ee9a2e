package sqlite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/drivertest"
)

// member is a request that may be part of a run. Its attempt is also its thread.
func member(name, session string, nth int) driver.Request {
	r := request(name, session)
	r.Attempt, r.Passable = fmt.Sprintf("%s%d", session[:8], nth), true
	r.Thread = r.Attempt
	return r
}

// joins queues up so many requests of a session together.
func (f *fixture) joins(name, session string, many int) (attempts []string) {
	f.t.Helper()
	var rs []driver.Request
	for i := range many {
		rs = append(rs, member(name, session, i))
		attempts = append(attempts, rs[i].Attempt)
	}
	if _, outcome, err := f.Enqueue(f.t.Context(), rs...); err != nil || outcome != driver.Queued {
		f.t.Fatal(outcome, err)
	}
	return attempts
}

// run has a session get a run of so many, after another session has had the name.
func (f *fixture) run(name, before, session string, many int) driver.Range {
	f.t.Helper()
	held := f.take(name, before)
	f.joins(name, session, many)
	next, err := drivertest.Release(f.t.Context(), f, held, true)
	if err != nil || len(next) != many {
		f.t.Fatal(next, err)
	}
	return next[0].Grant.Run
}

// tables are all that there is of locks and waiters.
func (f *fixture) tables() string {
	f.t.Helper()
	var all []string
	for _, query := range []string{
		"SELECT concat_ws(' ', name, session_id, attempt, host, thread, holds, token, first_token, last_token, waiters, next_ticket) FROM dblock_locks",
		"SELECT concat_ws(' ', name, ticket, session_id, attempt, passable, token) FROM dblock_waiters ORDER BY ticket",
	} {
		rows, err := f.pool.QueryContext(f.t.Context(), query)
		if err != nil {
			f.t.Fatal(err)
		}
		for rows.Next() {
			var row string
			must(f.t, rows.Scan(&row))
			all = append(all, row)
		}
		must(f.t, rows.Err())
	}
	return strings.Join(all, "\n")
}

func TestManyJoinAQueueByOneStatementForAllOfThem(t *testing.T) {
	f, p := onPower(t, "wal", "FULL")
	f.take("n", f.session())
	s := f.session()
	for many, want := range map[int][]string{
		1:   {"RoomOf", "TakeTickets", "AddWaiter"},
		2:   {"RoomOf", "TakeTickets", "AddWaiters"},
		200: {"RoomOf", "TakeTickets", "AddWaiters"},
	} {
		p.levels, p.ran = nil, nil
		attempts := f.joins("n", s, many)
		if !slices.Equal(p.ran, want) || len(p.levels) != 1 {
			t.Errorf("%d joined by %v, in %d transactions", many, p.ran, len(p.levels))
		}
		if _, err := f.Leave(t.Context(), s, "n", attempts); err != nil {
			t.Fatal(err)
		}
	}
}

// Broken by a statement whose error is not heeded, or that runs in a transaction of its own.
func TestAStepOfARunThatFailsInTheMiddleHasDoneNothing(t *testing.T) {
	ctx := t.Context()
	steps := map[string]struct {
		statements string
		step       func(f *fixture, h driver.Held) error
	}{
		"join": {"RoomOf TakeTickets AddWaiters COMMIT", func(f *fixture, h driver.Held) error {
			_, _, err := f.Enqueue(ctx, member("n", h.Session, 7), member("n", h.Session, 8))
			return err
		}},
		"release": {"FreeLock DropMembers CloseRun FirstWaiter DropWaiters Followers GiveLock MarkMembers CountGrant COMMIT", func(f *fixture, h driver.Held) error {
			_, err := drivertest.Release(ctx, f, h, true)
			return err
		}},
		"break": {"AttemptOf FreeLock ResetMembers CloseRun FirstWaiter DropWaiters Followers GiveLock MarkMembers AddEvent COMMIT", func(f *fixture, h driver.Held) error {
			_, _, err := drivertest.Break(ctx, f, "", "n", f.look("", "n").Holder, driver.Event{Name: "n", Kind: "broken"})
			return err
		}},
		"leave": {"DropPlaces RunOf Members DropMembers ShowMember COMMIT", func(f *fixture, h driver.Held) error {
			_, err := drivertest.Undo(ctx, f, h.Session, "n", f.look("", "n").Holder.Attempt)
			return err
		}},
		"settle": {"RunOf Members DropMembers ShowMember ResetMembers COMMIT", func(f *fixture, h driver.Held) error {
			h.Token--
			return f.Settle(ctx, h, true)
		}},
		"re-enter": {"HolderOf ResetMembers Reenter COMMIT", func(f *fixture, h driver.Held) error {
			r := request("n", h.Session)
			r.Thread = f.look("", "n").Holder.Thread
			_, _, err := f.Reenter(ctx, r)
			return err
		}},
	}
	for name, c := range steps {
		t.Run(name, func(t *testing.T) {
			f, p := onPower(t, "wal", "FULL")
			s, other := f.session(), f.session()
			tokens := f.run("n", other, s, 4)
			f.joins("n", other, 3)
			held := driver.Held{Name: "n", Session: s, Token: tokens.Last}
			before := f.tables()
			for _, statement := range strings.Fields(c.statements) {
				if p.refused = "-- name: " + statement + " "; statement == "COMMIT" {
					p.refused = statement
				}
				if err := c.step(f, held); err == nil {
					t.Errorf("%s failed, and nobody was told", statement)
				}
				p.refused = ""
				if after := f.tables(); after != before {
					t.Fatalf("%s failed:\n%s\nwas\n%s", statement, after, before)
				}
			}
			if err := c.step(f, held); err != nil || f.tables() == before {
				t.Error(err)
			}
		})
	}
}

// An operator may free a name by hand: what is marked in its queue then is of no run.
func TestWhatAFreeNameHasOfARunWaitsAgain(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.run("n", f.session(), s, 3)
	f.exec("UPDATE dblock_locks SET session_id = NULL, attempt = ''")
	if state := f.look(s, "n"); len(state.Granted) > 0 || len(state.Queued) != 2 || !state.Ready {
		t.Errorf("%+v", state)
	}
	next, _, err := drivertest.TakeOver(t.Context(), f, s, "n", driver.Holder{})
	if err != nil || len(next) != 2 {
		t.Error(next, err)
	}
}

// Another holder than a run's has none of its members.
func TestAMemberIsGrantedNothingOfAnothersRun(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	f.run("n", f.session(), s, 3)
	f.exec("UPDATE dblock_locks SET session_id = ?", f.session())
	if state := f.look(s, "n"); len(state.Granted) > 0 || len(state.Queued) != 2 {
		t.Errorf("%+v", state)
	}
}

// marked is how many places are of a run.
func (f *fixture) marked() int64 {
	return f.number("SELECT count(*) FROM dblock_waiters WHERE token <> 0")
}

func TestAnOwnerThatComesBackIntoARunEndsIt(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	run := f.run("n", f.session(), s, 3)
	r := request("n", f.session())
	r.Thread = f.look(s, "n").Holder.Thread
	grant, there, err := f.Reenter(t.Context(), r)
	if err != nil || !there || grant.Token <= run.Last || !grant.Contended {
		t.Fatalf("%+v, %v, %v", grant, there, err)
	}
	if state := f.look(s, "n"); len(state.Queued) != 2 || len(state.Granted) > 0 || f.marked() != 0 {
		t.Errorf("%+v, %d places are of a run", state, f.marked())
	}
	next, err := drivertest.Release(t.Context(), f, driver.Held{Name: "n", Session: r.Session, Token: grant.Token}, true)
	if err != nil || len(next) != 2 || next[0].Grant.Token <= grant.Token {
		t.Errorf("%+v, %v", next, err)
	}
}

// Only a client that did not settle a run first could ask for these.
func TestAnUnsettledRunIsNotRaisedAndIsNoMoreOnceDowngraded(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	run := f.run("n", f.session(), s, 3)
	held := driver.Held{Name: "n", Session: s, Token: run.Last}
	if token, err := f.Raise(t.Context(), held, run.Last+10); err != driver.ErrNotHeld {
		t.Errorf("raised to %d, %v", token, err)
	}
	next, err := f.Downgrade(t.Context(), held)
	if err != nil || len(next) > 0 {
		t.Fatal(next, err)
	}
	if state := f.look(s, "n"); len(state.Queued) != 2 || len(state.Granted) != 1 || f.marked() != 0 {
		t.Errorf("%+v, %d places are of a run", state, f.marked())
	}
}

func TestARunIsReleasedInATransactionOfTheApplications(t *testing.T) {
	f := newFixture(t)
	s, other := f.session(), f.session()
	run := f.run("n", other, s, 3)
	f.joins("n", other, 2)
	before := f.tables()
	held := driver.Held{Name: "n", Session: s, Token: run.Last}
	for _, commits := range []bool{false, true} {
		tx := f.begin()
		must(t, f.tx().ReleaseTx(t.Context(), tx, held, nil))
		if !commits {
			must(t, tx.Rollback())
			if after := f.tables(); after != before {
				t.Errorf("after a rollback:\n%s\nwas\n%s", after, before)
			}
			continue
		}
		must(t, tx.Commit())
	}
	if state := f.look(other, "n"); len(state.Granted) != 2 || state.Holder.Session != other || state.Waiters != 1 {
		t.Errorf("%+v", state)
	}
}

func TestWhatThePresentRunHasWrittenIsKept(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	run := f.run("n", f.session(), s, 3)
	for token := run.First - 1; token <= run.Last+1; token++ {
		must(t, f.Record(t.Context(), []driver.Event{{Name: "n", Kind: "note", Token: token, Session: s}}))
	}
	f.exec("UPDATE dblock_events SET at = 1")
	if n, err := f.PurgeRecords(t.Context(), time.Hour, 100); err != nil || n != 2 {
		t.Errorf("%d were purged, %v: want those before and after the run", n, err)
	}
}

// Broken by looking at the first token alone: the clock has passed that, and not the last.
func TestARunWhoseLastTokenTheClockHasNotReachedMustLast(t *testing.T) {
	for many, want := range map[int]int64{9: 1, 10: full} {
		f, p := onPower(t, "wal", "FULL")
		s := f.session()
		held := f.take("n", s)
		f.exec("DROP VIEW dblock_clock")
		f.exec("CREATE TABLE dblock_clock (now_us integer)")
		now := time.Now().UnixMilli() * 1000
		f.exec("INSERT INTO dblock_clock VALUES (?)", now)
		f.exec("UPDATE dblock_locks SET token = ?", now+tick.Microseconds()-10)
		f.joins("n", s, many)
		p.levels = nil
		next, err := drivertest.Release(t.Context(), f, held, true)
		if err != nil || len(next) != many || next[0].Grant.Token != now+tick.Microseconds()-9 {
			t.Fatal(next, err)
		}
		if !slices.Equal(p.levels, []int64{want}) {
			t.Errorf("a run of %d was committed with synchronous=%v: want %d", many, p.levels, want)
		}
	}
}

func TestASettlingOfATokenAheadOfTheClockIsOnTheDisk(t *testing.T) {
	for ahead, want := range map[time.Duration]int64{0: 1, time.Hour: full} {
		f, p := onPower(t, "wal", "FULL")
		s := f.session()
		held := f.take("n", s)
		f.joins("n", s, 3)
		f.exec("UPDATE dblock_locks SET token = token + ?", ahead.Microseconds())
		next, err := drivertest.Release(t.Context(), f, held, true)
		if err != nil || len(next) != 3 {
			t.Fatal(next, err)
		}
		p.levels = nil
		must(t, f.Settle(t.Context(), driver.Held{Name: "n", Session: s, Token: next[1].Grant.Token}, false))
		if !slices.Equal(p.levels, []int64{want}) {
			t.Errorf("settled %v ahead of the clock with synchronous=%v: want %d", ahead, p.levels, want)
		}
	}
}
