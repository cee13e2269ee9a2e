package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The rules for many names at once, and for runs.

func requests(session string, names ...string) []protocol.Request {
	rs := make([]protocol.Request, len(names))
	for i, name := range names {
		rs[i] = request(session, session+" "+name)
		rs[i].Name = name
	}
	return rs
}

// Broken by leaving ORDER BY out of EnsureRows: each would wait for a row that the other has made.
func TestBatchesInOppositeOrdersNeverDeadlock(t *testing.T) {
	s := scriptOf(t, "a", "b")
	took := make(chan int, 2)
	all := func(rs []protocol.Request) func() {
		return func() {
			grants, _, err := drivertest.Batch(t.Context(), s, rs, nil)
			assert.NoError(t, err)
			n := 0
			for _, g := range grants {
				if g.Token != 0 {
					n++
				}
			}
			took <- n
		}
	}
	s.begin()
	s.do(query(postgresdb.EnsureRow, "m"))
	one := s.blocked(all(requests("a", "l", "m", "n")))
	two := s.blocked(all(requests("b", "n", "m", "l")), 2)
	s.commit()
	<-one
	<-two
	if x, y := <-took, <-took; x+y != 3 {
		t.Errorf("one took %d, the other %d", x, y)
	}
	s.sound()
}

// Broken by leaving out SKIP LOCKED, or by making rows that are there: the other callers would wait
// for an application's transaction, which may have changed a row.
func TestABatchPassesOverALockedRow(t *testing.T) {
	s := scriptOf(t, "a")
	for _, r := range requests("a", "k", "l", "m", "n") {
		s.release(s.have(r))
	}
	held := []protocol.Held{s.have(requests("a", "m")[0]), s.have(requests("a", "n")[0])}
	s.begin()
	s.do(query(postgresdb.TakeLock, postgresdb.TakeLockParams{Name: "k", Session: "a", Attempt: "k",
		LockTimeout: "10s"}))
	s.do(query(postgresdb.LockRow, "m"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	grants, released, err := drivertest.Batch(ctx, s, requests("a", "k", "l", "new"), held)
	if err != nil || grants[0].Token != 0 || grants[1].Token == 0 || grants[2].Token == 0 || released[0] ||
		!released[1] {
		t.Errorf("%+v, %v, %v", grants, released, err)
	}
	s.commit()
	s.sound()
}

// What another transaction commits between the snapshot of the statement and its lock on the row
// counts. Broken by judging a row as the snapshot has it: a lock would be granted twice, or
// released to nobody with a waiter in the queue.
func TestABatchJudgesARowAsItIsOnceItIsLocked(t *testing.T) {
	s := scriptOf(t, "a", "b")
	for _, r := range requests("a", "free", "rests", "shared", "waits") {
		s.release(s.have(r))
	}
	shares := []protocol.Request{units(request("a", "s1"), 1, 2), units(request("a", "s2"), 1, 2)}
	shares[0].Name, shares[1].Name = "joined", "joined"
	held := []protocol.Held{s.have(requests("a", "held")[0]), s.have(requests("a", "queued")[0]), s.have(shares[0]),
		s.have(shares[1])}
	// The statement reads the clock before it locks a row.
	s.exec("CREATE FUNCTION clock_of_the_test() RETURNS bigint LANGUAGE sql AS $$ SELECT (extract(epoch FROM " +
		"clock_timestamp()) * 1000000)::bigint $$")
	s.exec("CREATE OR REPLACE FUNCTION dblock_now() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN " +
		"IF current_query() LIKE '%BatchRows%' THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF; RETURN " +
		"clock_of_the_test(); END $$")
	s.begin()
	require.NoError(t, require.ErrOf(s.tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")))
	var grants []protocol.Grant
	var released []bool
	done := s.blocked(func() {
		var err error
		if grants, released, err = drivertest.Batch(t.Context(), s, requests("a", "free", "rests", "shared", "waits"),
			held); err != nil {
			t.Error(err)
		}
	})
	s.exec("UPDATE dblock_locks SET session_id = 'b', attempt = 'b1', token = token + 1, first_token = token + 1, " +
		"last_token = token + 1 WHERE name = 'free'")
	s.exec("UPDATE dblock_locks SET rests_until = 9000000000000000 WHERE name = 'rests'")
	s.exec("UPDATE dblock_locks SET shared_units = 1, capacity = 2 WHERE name = 'shared'")
	s.exec("UPDATE dblock_locks SET waiters = 1 WHERE name IN ('waits', 'queued', 'joined')")
	s.exec("UPDATE dblock_locks SET token = token + 1, first_token = token + 1, last_token = token + 1 WHERE name " +
		"= 'held'")
	s.commit()
	<-done
	for i, g := range grants {
		assert.Equal(t, g.Token, 0, "request", i, "was granted")
	}
	if slices.Contains(released, true) {
		t.Errorf("released %v", released)
	}
}

// Broken by a claim that does not look at what it waited for.
func TestOneOfTwoWhoRetryASlotRunsIt(t *testing.T) {
	s := scriptOf(t, "a", "b")
	s.session("c", time.Minute)
	slot := driver.Slot{Length: 1000 * time.Hour}
	run, mine, err := s.BeginRun(t.Context(), driver.Run{Name: "n", Token: 1, Session: "a"}, slot, driver.Retry{})
	if err != nil || !mine {
		t.Fatal(mine, err)
	}
	run.Failed = true
	require.NoError(t, s.EndRun(t.Context(), run))
	s.begin()
	s.do(query(postgresdb.ClaimRun, postgresdb.ClaimRunParams{
		Name: "n", Slot: run.Slot, Token: 2, Session: "b", BeganAt: run.Began.UnixMicro(), Tries: 2,
		SlotEnds: run.SlotEnds.UnixMicro(), Replaced: 1,
	}))
	s.behind(func() {
		is, mine, err := s.BeginRun(t.Context(), driver.Run{Name: "n", Token: 3, Session: "c"}, slot,
			driver.Retry{Most: 9})
		if err != nil || mine || is.Token != 2 || is.Tries != 2 || is.Failed {
			t.Errorf("got %+v, %v, %v", is, mine, err)
		}
	})
}

// Broken by a claim that does not look at what it waited for.
func TestOfTwoWhoClaimAMomentOneRunsIt(t *testing.T) {
	s := scriptOf(t, "a", "b")
	moment := s.number("SELECT dblock_now()")
	s.begin()
	s.do(query(postgresdb.ClaimRun, postgresdb.ClaimRunParams{Name: "n", Slot: moment, Token: 1, Session: "a",
		BeganAt: moment, Tries: 1, SlotEnds: moment}))
	s.behind(func() {
		run, mine, err := s.BeginRun(t.Context(), driver.Run{Name: "n", Token: 2, Session: "b"},
			driver.Slot{Moment: moment}, driver.Retry{Most: 9})
		if err != nil || mine || run.Token != 1 || run.Slot != moment {
			t.Errorf("got %+v, %v, %v", run, mine, err)
		}
	})
}

// Broken by a claim that does not look whether the run that failed, as it seemed, has ended.
func TestARunThatEndedWellIsNotTakenOver(t *testing.T) {
	s := scriptOf(t, "a")
	run, _, err := s.BeginRun(t.Context(), driver.Run{Name: "n", Token: 1, Session: "a"},
		driver.Slot{Length: 1000 * time.Hour}, driver.Retry{})
	require.NoError(t, err)
	require.NoError(t, s.EndRun(t.Context(), run))
	row := slots.Row{Name: "n", Slot: run.Slot, Token: 2, SessionID: "a", SlotEnds: run.SlotEnds.UnixMicro()}
	if claimed, err := (runTables{t.Context(), s.engine}).Claim(row, 1); claimed || err != nil {
		t.Errorf("%v, %v, want that it is not claimed", claimed, err)
	}
	row.SlotEnds++
	if claimed, err := (runTables{t.Context(), s.engine}).Claim(row, 1); !claimed || err != nil {
		t.Errorf("the row of another slot: %v, %v, want that it is claimed", claimed, err)
	}
}
