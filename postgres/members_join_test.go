package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/drivertest"
)

// Rule 2. Broken by leaving the condition on the row out of JoinTogether.
func TestNobodyJoinsTogetherForANameThatWasReleasedMeanwhile(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{Name: "n", Session: "a", Token: h.Token, LockTimeout: "10s"}))
	done := s.blocked(func() {
		if _, outcome, err := s.Enqueue(t.Context(), passable("b", "b1", "b2")...); outcome != driver.Gone || err != nil {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	s.commit()
	<-done
	if n := s.number("SELECT count(*) + (SELECT waiters FROM dblock_locks) FROM dblock_waiters"); n != 0 {
		t.Errorf("%d waiters in the queue or its count", n)
	}
}

// Rules 7 and 9. Broken by tickets that were counted before the row was locked.
func TestTicketsOfManyCommitInTheirOrder(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.have(request("a", "a1"))
	s.begin()
	s.do(s.joinTogether(passable("a", "1", "2"), new(bool)))
	done := s.blocked(func() { s.joins(passable("a", "3", "4", "5")...) })
	s.commit()
	<-done
	var order []string
	if err := s.pool.QueryRow(t.Context(), "SELECT array_agg(attempt ORDER BY ticket) FROM dblock_waiters").Scan(&order); err != nil || strings.Join(order, "") != "12345" {
		t.Errorf("the queue is %q, %v", order, err)
	}
	if n := s.number("SELECT count(DISTINCT xmin::text) FROM dblock_waiters"); n != 2 {
		t.Errorf("%d transactions", n)
	}
	s.sound()
}

// Broken by anything that a run is done to in more than one transaction.
func TestARunIsWholeWhereATransactionFails(t *testing.T) {
	for name, call := range map[string]func(s *script, run driver.Range) error{
		"it begins": func(s *script, run driver.Range) error {
			_, err := drivertest.Release(s.Context(), s, driver.Held{Name: "n", Session: "c", Token: s.holder().Grant.Token}, true)
			return err
		},
		"it is released": func(s *script, run driver.Range) error {
			_, err := drivertest.Release(s.Context(), s, ofRun(run.Last), true)
			return err
		},
		"it is settled": func(s *script, run driver.Range) error {
			return s.Settle(s.Context(), ofRun(run.First+1), true)
		},
		"its first member leaves": func(s *script, run driver.Range) error {
			_, err := drivertest.Undo(s.Context(), s, "b", "n", "b1")
			return err
		},
		"members leave": func(s *script, run driver.Range) error {
			_, err := s.Leave(s.Context(), "b", "n", []string{"b2", "b3"})
			return err
		},
		"it is broken": func(s *script, run driver.Range) error {
			holder := driver.Holder{Session: "b", Attempt: "b1", Grant: driver.Grant{Token: run.Last}}
			_, _, err := drivertest.Break(s.Context(), s, "c", "n", holder, driver.Event{Name: "n", Kind: "broken"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, run := running(t, "b1", "b2", "b3")
			if name == "it begins" {
				s.joins(passable("a", "a2", "a3")...)
				s.release(ofRun(run.Last))
			}
			was, committed := s.tables(), s.db
			s.db = uncommitted{committed}
			if err := call(s, run); err == nil {
				t.Error("no error")
			}
			s.db = committed
			if is := s.tables(); is != was {
				t.Errorf("it was\n%s\nand is\n%s", was, is)
			}
			if err := call(s, run); err != nil {
				t.Error(err)
			}
			if is := s.tables(); is == was {
				t.Error("nothing was done")
			}
			s.sound()
		})
	}
}

// Broken by leaving RequeueMembers out of Reenter: nobody would ever serve the members' places.
func TestTheMembersOfARunWaitAgainWhereItsOwnerComesBack(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	back := request("c", "c2")
	back.Thread = "b1"
	g, taken, err := s.Reenter(t.Context(), back)
	if err != nil || !taken || g.Token <= run.Last {
		t.Fatalf("%+v after %d, %v, %v", g, run.Last, taken, err)
	}
	s.shows(g.Token, "c2", 0, 0, "b2", "b3", "c1")
}

// Broken by taking the tokens of a run that a snapshot shows for the grant to one of its members: a
// lock that is held would be lost.
func TestARunThatWasSettledSinceTheSnapshotIsNotLost(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, what := range []string{"Guard", "ReleaseTx"} {
			for member := range int64(3) {
				t.Run(fmt.Sprint(level, "/", what, "/", member), func(t *testing.T) {
					s, run := running(t, "b1", "b2", "b3")
					tx := s.snapshot(level)
					h := ofRun(run.First + member)
					if err := s.Settle(t.Context(), h, false); err != nil {
						t.Fatal(err)
					}
					s.makeGuard(h)
					if err := s.inside(what, tx, h); !errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrNotHeld) {
						t.Errorf("it is held, and %s says: %v", what, err)
					}
					if err := s.inside(what, s.snapshot(level), h); err != nil {
						t.Errorf("a new transaction: %v", err)
					}
				})
			}
		}
	}
}

// Broken by leaving dblock_durable out of Settle, HandToRun or ShowNextMember: a run that a crash
// brings back would be passed on again.
func TestWhatChangesARunReachesTheDisk(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	for name, change := range map[string]statement{
		"to a run":    query(postgresdb.HandToRun, postgresdb.HandToRunParams{Name: "n", Session: "b", Token: run.Last}),
		"settle":      query(postgresdb.Settle, postgresdb.SettleParams{Name: "n", Session: "b", Token: run.First + 1}),
		"next member": query(postgresdb.ShowNextMember, postgresdb.ShowNextMemberParams{Name: "n", Session: "b", Attempt: "b1"}),
	} {
		var commits string
		var found bool
		err := s.db.transact(t.Context(),
			statement{sql: "SET LOCAL synchronous_commit = off"}, change,
			statement{sql: "SELECT current_setting('synchronous_commit')"}.found(&commits, &found),
			statement{sql: "ROLLBACK"}) // the COMMIT that follows finds no transaction, and warns
		if err != nil || commits != "on" {
			t.Errorf("%s: synchronous_commit is %q at the commit, %v", name, commits, err)
		}
	}
}

// Broken by leaving the lock timeout out of JoinTogether, or by a Settle that waits without one.
func TestWhatFindsTheRowOfARunLockedForLongComesBackLater(t *testing.T) {
	s, run := running(t, "b1", "b2")
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.lockTimeout = briefly
	if _, _, err := s.Enqueue(t.Context(), passable("a", "a2", "a3")...); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("enqueue: %v", err)
	}
	if err := s.Settle(t.Context(), ofRun(run.First), false); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("settle: %v", err)
	}
}

// Rule 10. Broken by a JoinTogether that stays by itself.
func TestManyQueueUpWhateverTheDefaultIsolationLevel(t *testing.T) {
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			s := newScript(t, "default_transaction_isolation", isolation)
			s.session("a", time.Minute)
			s.have(request("a", "a1"))
			for _, nth := range []string{"1", "2"} { // the second knows of the level
				s.begin()
				s.do(join(request("a", "before "+nth)))
				done := s.blocked(func() { s.joins(passable("a", nth+"a", nth+"b")...) })
				s.commit()
				<-done
			}
			s.sound()
		})
	}
}

// Broken by joining one by one.
func TestManyJoinInOneStatement(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.have(request("a", "a1"))
	s.joins(passable("a", "a2", "a3", "a4")...)
	if !s.sent(postgresdb.JoinTogether) || s.sent(postgresdb.JoinQueue) {
		t.Error("they joined one by one")
	}
	s.sound()
}

// Broken by releasing by the highest token: after a settling that one is nobody's.
func TestNobodyReleasesByATokenThatARunHadReserved(t *testing.T) {
	s, run := running(t, "b1", "b2")
	if err := s.Settle(t.Context(), ofRun(run.First), false); err != nil {
		t.Fatal(err)
	}
	for _, waiter := range []struct{ session, attempt string }{{"b", "b2"}, {"c", "c1"}} {
		if _, err := s.Leave(t.Context(), waiter.session, "n", []string{waiter.attempt}); err != nil {
			t.Fatal(err)
		}
	}
	_, released, err := s.Batch(t.Context(), nil, []driver.Held{ofRun(run.Last)})
	if err != nil || released[0] {
		t.Errorf("released by a token that nobody has: %v, %v", released, err)
	}
	for _, contended := range []bool{false, true} {
		if next, err := drivertest.Release(t.Context(), s, ofRun(run.Last), contended); !errors.Is(err, driver.ErrNotHeld) || len(next) > 0 {
			t.Errorf("released by a token that nobody has, handed on %+v, %v", next, err)
		}
	}
	if _, released, err = s.Batch(t.Context(), nil, []driver.Held{ofRun(run.First)}); err != nil || !released[0] {
		t.Errorf("released %v, %v", released, err)
	}
}

// Broken by RequeueMembers of whatever run the session has: a late Break would make the members of
// a newer one wait, which have begun.
func TestABreakOfAnOlderHoldLeavesTheRun(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	holder := driver.Holder{Session: "b", Attempt: "older", Grant: driver.Grant{Token: run.First - 1}}
	if next, left, err := drivertest.Break(t.Context(), s, "c", "n", holder, driver.Event{Name: "n", Kind: "broken"}); left || len(next) > 0 || err != nil {
		t.Errorf("took %v, handed on %+v, %v", left, next, err)
	}
	s.shows(run.First, "b1", 0, 2, "b2 1", "b3 2", "c1")
}

// Broken by a run among the places where an owner waits: a ring would be seen that is none.
func TestTheOwnerOfAMemberDoesNotWaitThere(t *testing.T) {
	s, run := running(t, "b1", "b2", "b3")
	s.have(of("k", request("b", "b2"))) // by the owner of a member
	s.enqueue(of("k", request("c", "waits for k")))
	attempts := func() (seen []string) {
		t.Helper()
		waits, err := s.WaitGraph(t.Context(), []string{"waits for k"})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range waits {
			seen = append(seen, w.Name+" "+w.Attempt)
		}
		slices.Sort(seen)
		return seen
	}
	if seen := attempts(); !slices.Equal(seen, []string{"k b2", "k waits for k"}) {
		t.Errorf("in a run: %q", seen)
	}
	if err := s.Settle(t.Context(), ofRun(run.First), false); err != nil {
		t.Fatal(err)
	}
	if seen := attempts(); !slices.Equal(seen, []string{"k b2", "k waits for k", "n b1", "n b2"}) {
		t.Errorf("after the run: %q", seen)
	}
}
