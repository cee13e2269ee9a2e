package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The rules for race-free SQL, each with connections in a fixed order: the script holds something
// uncommitted, the engine's call runs into it, the script commits, and the call must come out
// right. Every one of these fails when its rule is broken; the comment says how.

// Rule 1. Broken by now() in dblock_now, which stands still from the statement's start.
func TestALeaseBeginsWhenTheWaitForTheRowEnds(t *testing.T) {
	s := scriptOf(t, "a")
	g := s.take(request("a", "a1"))
	require.NoError(t,
		require.ErrOf(drivertest.Release(t.Context(), s, protocol.Held{Name: "n", Session: "a", Token: g.Token},
			false)))
	s.begin()
	s.do(query(postgresdb.LockRowTx, "n"))
	r := request("a", "a2") // a share: its statement waits
	r.Units, r.Of, r.Lease = 1, protocol.Readers, time.Minute
	done := s.blocked(func() { s.take(r) })
	free := s.number("SELECT dblock_now()")
	s.commit()
	<-done
	if start := s.number("SELECT expires_at FROM dblock_shares") - r.Lease.Microseconds(); start < free {
		t.Errorf("the lease began %v before the row was free", microseconds(free-start))
	}
}

// Rules 2 and 4. Broken by leaving out TakeLock's WHERE.
func TestTakeDecidesByTheRowThatItWaitedFor(t *testing.T) {
	s := scriptOf(t, "a", "b")
	s.begin()
	s.do(query(postgresdb.EnsureRow, "n"))
	s.do(query(postgresdb.TakeLock, postgresdb.TakeLockParams{Name: "n", Session: "a", Attempt: "a1",
		LockTimeout: "10s"}))
	s.behind(func() {
		if _, taken, err := drivertest.Take(t.Context(), s, request("b", "b1")); taken || err != nil {
			t.Errorf("took what another had just taken: %v, %v", taken, err)
		}
	})
}

// Rule 4, where the row is new: what an insert has waited for may have been another row of the
// name, with a grant that came and went. Broken by granting what was inserted.
func TestATokenIsMadeWhenTheRowIsThere(t *testing.T) {
	for name, take := range map[string]func(*script) (protocol.Grant, error){
		"the whole": func(s *script) (protocol.Grant, error) {
			g, _, err := drivertest.Take(s.Context(), s, request("a", "a1"))
			return g, err
		},
		"units": func(s *script) (protocol.Grant, error) {
			g, _, err := drivertest.Take(s.Context(), s, units(request("a", "a1"), 1, 2))
			return g, err
		},
		"by the general way": func(s *script) (protocol.Grant, error) {
			take := drivertest.General{Op: protocol.Take{Request: request("a", "a1")}}
			result, err := driver.Do(s.Context(), s, take)
			return result.Grant, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptOf(t, "a")
			s.begin()
			s.do(query(postgresdb.EnsureRow, "n"))
			var token int64
			done := s.blocked(func() {
				g, err := take(s)
				assert.NoError(t, err)
				token = g.Token
			})
			purged := s.number("SELECT dblock_now()")
			s.do(statement{sql: "DELETE FROM dblock_locks WHERE name = 'n'"})
			s.commit()
			<-done
			if token <= purged {
				t.Errorf("token %d after %d, which was purged", token, purged)
			}
			s.sound()
		})
	}
}

// Broken by a request that makes the rows of its name without an end.
func TestRowsThatAreMissingHoweverOftenTheyAreMadeAreNamed(t *testing.T) {
	for name, op := range map[string]protocol.Op{
		"Take": protocol.Take{Request: request("a", "a1")}, "Join": protocol.Join{Request: request("a", "a1")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
			s.session("a", time.Minute)
			s.exec("CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
			s.exec("CREATE TRIGGER none BEFORE INSERT ON dblock_locks FOR EACH ROW EXECUTE FUNCTION swallow()")
			_, err := driver.Do(t.Context(), s, op)
			if !errors.Is(err, driver.ErrUnavailable) || driver.InDoubt(err) ||
				!strings.Contains(err.Error(), "look for triggers, rules and changed functions") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Rule 3, the single statement of a release. Broken by leaving out its "waiters = 0".
func TestAnIdleReleaseIsNoneWhenSomebodyJustQueuedUp(t *testing.T) {
	s := scriptOf(t, "a", "b")
	g := s.take(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(request("b", "b1")))
	s.behind(func() {
		next, err := drivertest.Release(t.Context(), s, protocol.Held{Name: "n", Session: "a", Token: g.Token}, false)
		if err != nil || first(next).Attempt != "b1" {
			t.Errorf("the lock went to %+v, %v", next, err)
		}
	})
}

// Rule 2, for the queue. Broken by leaving the condition on the row out of JoinQueue: the waiter
// would wait for nobody.
func TestNobodyQueuesForANameThatWasReleasedMeanwhile(t *testing.T) {
	s := scriptOf(t, "a", "b")
	g := s.take(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{Name: "n", Session: "a", Token: g.Token}))
	s.behind(func() {
		if _, outcome, err := drivertest.Join(t.Context(), s, request("b", "b1")); outcome != protocol.Done ||
			err != nil {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	assert.Equal(t, s.number("SELECT count(*) + (SELECT waiters FROM dblock_locks) FROM dblock_waiters"), 0,
		"waiters in the queue or its count")
}

// Rule 2, for a place that grows. Broken by a JoinQueue that looks at the row of its snapshot,
// where the place is the last: the request would overtake one that has joined meanwhile. And by one
// that does not look at the place again: members would be added to one that has left.
func TestARequestExtendsThePlaceThatIsTheLastOnceTheRowIsLocked(t *testing.T) {
	for says, row := range map[string]struct {
		meanwhile statement
		ahead     int
	}{
		"nothing has changed":       {query(postgresdb.LockRow, "n"), 1},
		"it has grown":              {extend("b1", request("b", "b2")), 2},
		"somebody stands behind it": {join(request("a", "a2")), 0},
		"it has all the members that a place may have": {statement{sql: `WITH full_place AS (UPDATE dblock_waiters
			SET members = 256) UPDATE dblock_locks SET waiters = 256`}, 0},
		"it has left": {statement{sql: `WITH gone AS (DELETE FROM dblock_waiters RETURNING members)
			UPDATE dblock_locks SET waiters = waiters - (SELECT sum(members) FROM gone)`}, 0},
	} {
		t.Run(says, func(t *testing.T) {
			s := scriptOf(t, "a", "b")
			s.have(request("a", "a1"))
			s.enqueue(request("b", "b1"))
			s.begin()
			s.do(row.meanwhile)
			s.behind(func() {
				joined, err := driver.Do(t.Context(), s, protocol.Join{Request: request("b", "b3"), Extends: "b1"})
				if err != nil || joined.Outcome != protocol.Queued || joined.Ahead != row.ahead {
					t.Errorf("%+v, %v", joined, err)
				}
			})
			s.sound()
		})
	}
}

// Rules 7 and 9. Broken by tickets from a sequence: then the second to ask would be the first to
// commit.
func TestTicketsCommitInTheirOrder(t *testing.T) {
	s := scriptOf(t, "a", "b")
	g := s.take(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(request("b", "first")))
	s.behind(func() { s.enqueue(request("b", "second")) })
	next, err := drivertest.Release(t.Context(), s, protocol.Held{Name: "n", Session: "a", Token: g.Token}, true)
	if err != nil || first(next).Attempt != "first" {
		t.Errorf("the lock went to %+v, %v", next, err)
	}
}

// Rule 9. Broken by SKIP LOCKED in HandToHead, or in the general way, which serves heads with a
// lease: a head of the queue that is merely being touched would be passed over.
func TestAHeadThatIsBeingTouchedIsNotPassedOver(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Minute} {
		s := scriptOf(t, "a", "b")
		g := s.take(request("a", "a1"))
		head := request("b", "head")
		head.Lease = lease
		s.enqueue(head)
		s.enqueue(request("b", "tail"))
		s.begin()
		s.do(statement{sql: "SELECT 1 FROM dblock_waiters WHERE attempt = 'head' FOR UPDATE"})
		s.behind(func() {
			next, err := drivertest.Release(t.Context(), s, protocol.Held{Name: "n", Session: "a", Token: g.Token},
				true)
			if err != nil || first(next).Attempt != "head" {
				t.Errorf("the lock went to %+v, %v", next, err)
			}
		})
	}
}

// Rule 5. Broken by leaving out LockHeartbeat, or by putting the time into its WHERE.
func TestAHeartbeatInFlightKeepsASessionAlive(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Microsecond) // over at once
	s.begin()
	s.do(query(postgresdb.Heartbeat, postgresdb.HeartbeatParams{Session: "a", Ttl: time.Minute.Microseconds(),
		Build: driver.SchemaVersion}))
	s.behind(func() {
		if dead, err := s.Expire(t.Context(), "a"); dead || err != nil {
			t.Errorf("expired under a heartbeat: %v, %v", dead, err)
		}
	})
}

// Rule 6. Broken by taking a missing row for death: the session here is about to commit.
func TestAMissingSessionIsNotDead(t *testing.T) {
	s := newScript(t)
	s.begin()
	s.do(query(postgresdb.OpenSession, postgresdb.OpenSessionParams{ID: "a", Ttl: time.Minute.Microseconds()}))
	s.behind(func() {
		if dead, err := s.Expire(t.Context(), "a"); dead || err != nil {
			t.Errorf("expired a session that was only just opening: %v, %v", dead, err)
		}
	})
	if dead, err := s.Expire(t.Context(), "gone"); !dead || err != nil {
		t.Errorf("a session that an operator deleted is never cleared up: %v, %v", dead, err)
	}
}

// A grant that a crash takes back would be granted again. Broken by leaving dblock_durable out of a
// grant.
func TestAGrantReachesTheDiskWhateverTheApplicationSet(t *testing.T) {
	s := newScript(t, "synchronous_commit", "off")
	s.session("a", time.Minute)
	g := s.take(request("a", "a1"))
	s.enqueue(request("a", "a2"))
	s.session("b", time.Minute)
	shared := request("b", "b1")
	shared.Name, shared.Units, shared.Of, shared.Lease = "s", 1, 2, time.Minute
	s.take(shared)
	for name, grant := range map[string]statement{
		"take": query(postgresdb.TakeLock, postgresdb.TakeLockParams{Name: "free", Session: "a", Attempt: "a3",
			LockTimeout: "10s"}),
		"hand-off": query(postgresdb.Tell, postgresdb.TellParams{Hints: "[]"}),
		"to the head": query(postgresdb.HandToHead, postgresdb.HandToHeadParams{Name: "n", Session: "a",
			Token: g.Token}),
		"share": query(postgresdb.TakeShare, postgresdb.TakeShareParams{
			Name: "s", Session: "a", Attempt: "a5", Units: 1, Capacity: 2, LockTimeout: "10s"}),
		"run": query(postgresdb.ClaimRun, postgresdb.ClaimRunParams{Name: "j", Session: "a"}),
		"heartbeat": query(postgresdb.Heartbeat, postgresdb.HeartbeatParams{Session: "a",
			Ttl: time.Minute.Microseconds(), Build: driver.SchemaVersion}),
	} {
		var commits string
		var found bool
		err := s.db.transact(t.Context(),
			statement{sql: "SET LOCAL synchronous_commit = off"},
			query(postgresdb.EnsureRow, "free"), grant,
			statement{sql: "SELECT current_setting('synchronous_commit')"}.found(&commits, &found),
			statement{sql: "ROLLBACK"}) // the COMMIT that follows finds no transaction, and warns
		if err != nil || commits != "on" {
			t.Errorf("%s: synchronous_commit is %q at the commit, %v", name, commits, err)
		}
	}
}

func first(next []protocol.Handoff) protocol.Handoff {
	if len(next) == 0 {
		return protocol.Handoff{}
	}
	return next[0]
}

// A grant that a crash takes back would be granted again, while its holder believes in it.
func TestOnlyWhatACrashMayTakeBackIsLazy(t *testing.T) {
	held := protocol.Row{Name: "n", Session: "a", Attempt: "a1", First: 3, Last: 5, Token: 5, Ends: 100, Waiters: 1,
		Head: 1, Next: 2}
	for what, c := range map[string]struct {
		change func(n *protocol.Name)
		lazy   bool
	}{
		"nothing":            {func(*protocol.Name) {}, true},
		"a release":          {func(n *protocol.Name) { n.Session, n.Attempt, n.Ends = "", "", 0 }, true},
		"a place":            {func(n *protocol.Name) { n.Waiters, n.PutPlaces = 2, make([]protocol.Place, 1) }, true},
		"a place that left":  {func(n *protocol.Name) { n.Waiters, n.GonePlaces = 0, make([]protocol.Place, 1) }, true},
		"a grant":            {func(n *protocol.Name) { n.First, n.Last, n.Token = 9, 9, 9 }, false},
		"a share":            {func(n *protocol.Name) { n.Session, n.Token, n.Units = "", 9, 1 }, false},
		"what a share is":    {func(n *protocol.Name) { n.PutShares = make([]protocol.Share, 1) }, false},
		"a lock that moves":  {func(n *protocol.Name) { n.Session = "b" }, false},
		"a detached member":  {func(n *protocol.Name) { n.First, n.Last = 4, 4 }, false},
		"the end of a lease": {func(n *protocol.Name) { n.Ends = 200 }, false},
		"an event":           {func(n *protocol.Name) { n.Events = make([]protocol.Event, 1) }, false},
	} {
		n := protocol.Open(held, 1, nil)
		c.change(n)
		if lazy := reversible(held, n); lazy != c.lazy {
			t.Errorf("%s: %v, want %v", what, lazy, c.lazy)
		}
	}
}
