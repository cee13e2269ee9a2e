package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/reaper"
)

var refusals = inPlaces(own{
	{"a request that the database refuses fails alone: those that share its statement succeed", refusedAlone},
	{"LockAll says which of its names the database refuses, and keeps none", refusedAmongMany},
	{"calls that the database refuses leave nothing to be undone", refusedForGood},
	{"a sweep goes on behind what the database refuses", refusedSweep},
	{"neither Ask nor Break fails where the history takes no event", actsWithoutHistory},
	{"an event that the database refuses takes no other along", refusedEvent},
	{"a trigger on a table is refused at the first session, and named", triggered},
})

// refuse has the database refuse rows of a table of which a condition on the column values NEW.x
// holds. MySQL's and MariaDB's triggers would change what LAST_INSERT_ID tells.
func (e *env) refuse(t testing.TB, table, condition string) {
	t.Helper()
	if e.wiring.Kind == TiDB {
		e.exec(t, "SET GLOBAL tidb_enable_check_constraint = ON")
	}
	if e.wiring.Kind != SQLite {
		e.exec(t, "ALTER TABLE "+table+" ADD CONSTRAINT refuse CHECK (NOT ("+strings.ReplaceAll(condition, "NEW.",
			"")+"))")
		return
	}
	for _, how := range []string{"INSERT", "UPDATE"} {
		e.exec(t, fmt.Sprintf("CREATE TRIGGER %[1]s_refuse_%[2]s BEFORE %[2]s ON %[1]s WHEN %[3]s BEGIN SELECT "+
			"RAISE(ABORT, 'refused'); END", table, how, condition))
	}
}

// refuseName has the database refuse to give a name to anybody.
func (e *env) refuseName(t testing.TB) string {
	t.Helper()
	e.refuse(t, "dblock_locks", "NEW.name = 'refused' AND (NEW.session_id IS NOT NULL OR NEW.shared_units > 0)")
	return "refused"
}

// isRefused checks an error of the database's that is neither an outage nor a holder.
func isRefused(t testing.TB, err error) {
	t.Helper()
	if err == nil || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("a refused request: %v", err)
	}
}

// Broken by the error of a shared statement that is told to all.
func refusedAlone(t *testing.T, e *env) {
	a := e.app(t, 6)
	server := &sharing64{}
	a.hook(server.hook)
	c := e.clientOf(t, a)
	bad := e.refuseName(t)
	unlock(t, lock(t, c, "to have a session"))
	for range 20 {
		answer := make(chan struct{})
		server.answer.Store(&answer)
		server.slow.Store(0)
		var behind, others sync.WaitGroup
		for i := range 2 {
			behind.Go(func() { unlock(t, lock(t, c, fmt.Sprint("slow", i))) })
		}
		eventually(t, patience, "two statements are in flight", func() bool { return server.slow.Load() == 2 })
		for i := range 64 {
			others.Go(func() {
				if i == 40 {
					_, err := c.Lock(context.Background(), bad)
					isRefused(t, err)
					return
				}
				l, err := c.Lock(context.Background(), fmt.Sprint("n", i))
				if err == nil {
					err = l.Unlock(context.Background())
				}
				assert.NoError(t, err, "a request beside the refused one")
			})
		}
		others.Wait()
		close(answer)
		behind.Wait()
		if t.Failed() || server.refused.Load() > 0 {
			return
		}
	}
	t.Fatal("the refused request never shared a statement")
}

// sharing64 keeps those waiting for an answer whose names begin with slow, and counts the shared
// statements that the database refuses.
type sharing64 struct {
	answer        atomic.Pointer[chan struct{}]
	slow, refused atomic.Int32
}

func (b *sharing64) hook(ctx context.Context, c *fakedb.Call) error {
	if take, takes := c.Op().(protocol.Take); takes && strings.HasPrefix(take.Name, "slow") {
		b.slow.Add(1)
		<-*b.answer.Load()
	}
	err := c.Do(ctx)
	if err != nil && !driver.InDoubt(err) && len(c.Ops) > 1 {
		b.refused.Add(1)
	}
	return err
}

func refusedAmongMany(t *testing.T, e *env) {
	c := e.client(t)
	bad := e.refuseName(t)
	names := []string{"a", "b", bad, "z"}
	_, err := c.LockAll(brief(t), names)
	isRefused(t, err)
	says(t, err, err, bad)
	for _, name := range names {
		e.free(t, name)
	}
}

// Broken by taking a refusal for a lost answer.
func refusedForGood(t *testing.T, e *env) {
	a := e.app(t, 6)
	var undone atomic.Int64
	a.hook(fakedb.Count(&undone, func(c *fakedb.Call) bool { return c.Removes(protocol.ByAttempt) }))
	c := e.clientOf(t, a)
	bad := e.refuseName(t)
	for range 20 {
		_, err := c.Lock(brief(t), bad)
		isRefused(t, err)
		_, err = c.Lock(brief(t), bad, dblock.Permits(1, 3))
		isRefused(t, err)
	}
	is(t, c.Close(brief(t)), nil)
	if n := undone.Load(); n > 0 {
		t.Errorf("%d statements undid what was never done", n)
	}
}

// Broken by a sweep that ends with the first error.
func refusedSweep(t *testing.T, e *env) {
	c := e.client(t, dblock.WithoutReaper())
	names := []string{"a", "refused", "z"}
	for _, name := range names {
		lock(t, c, name)
	}
	e.refuse(t, "dblock_locks", "NEW.name = 'refused' AND NEW.session_id IS NULL")
	e.end(t, e.session(t, "a"))
	_, err := reaper.Sweep(brief(t), e.app(t, 2).engine())
	isRefused(t, err)
	for _, name := range names {
		assert.Equal(t, e.session(t, name) != "", (name == "refused"), "after the sweep", name, "is held")
	}
}

// Broken by a page that is dropped whole.
func refusedEvent(t *testing.T, e *env) {
	c := e.client(t, dblock.WithEvents())
	e.refuse(t, "dblock_events", "NEW.name = 'refused'")
	for i := range 40 {
		name := fmt.Sprint("n", i)
		if i == 17 {
			name = "refused"
		}
		unlock(t, lock(t, c, name))
	}
	is(t, c.Close(brief(t)), nil)
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_events"), 2*39, "events, all but those that were refused")
	assert.Equal(t, c.Stats().EventsDropped, 2, "events are counted as dropped")
}

// Broken by an event that is part of the act.
func actsWithoutHistory(t *testing.T, e *env) {
	c := e.client(t)
	for _, spoilt := range []struct {
		how string
		do  func()
	}{
		{"refuses", func() { e.refuse(t, "dblock_events", "NEW.at > 0") }},
		{"is gone", func() { e.exec(t, "DROP TABLE dblock_events") }},
	} {
		what := spoilt.how
		name := "where it " + what
		l, rested := lock(t, c, name), name+" and rests"
		unlock(t, lock(t, c, rested, dblock.MinHold(time.Hour)))
		if spoilt.do(); what == "refuses" {
			isRefused(t, l.Record(brief(t), "note", "")) // which is nothing but the event
		}
		is(t, c.Ask(brief(t), name, "why"), nil)
		assert.Equal(t, within(t, soon, "the holder is asked", l.Asked()), "why", what, "asked")
		breaks(t, c, name, 1)
		ended(t, soon, l, dblock.ErrLost)
		assert.NoError(t, assert.ErrOf(c.Break(brief(t), rested, "why")), what, "Break of a name that rests")
		unlock(t, lock(t, c, rested))
	}
}

// Broken by a client that goes on: with a trigger, MySQL and MariaDB return no token, and a row
// that PostgreSQL's rule keeps as it was is asked for again and again.
func triggered(t *testing.T, e *env) {
	if e.wiring.plain() {
		t.Skip("there are no triggers")
	}
	made := map[string][2]string{"trigger": {"CREATE TRIGGER audit BEFORE UPDATE ON dblock_locks FOR EACH ROW " +
		"SET NEW.host = NEW.host", "DROP TRIGGER audit"}}
	switch e.wiring.Kind {
	case SQLite:
		made["trigger"] = [2]string{"CREATE TRIGGER audit AFTER UPDATE ON dblock_locks BEGIN SELECT 1; END",
			"DROP TRIGGER audit"}
	case Postgres:
		made = map[string][2]string{
			"trigger": {"CREATE TRIGGER audit BEFORE UPDATE ON dblock_locks FOR EACH ROW EXECUTE FUNCTION " +
				"suppress_redundant_updates_trigger()", "DROP TRIGGER audit ON dblock_locks"},
			"rule": {"CREATE RULE audit AS ON UPDATE TO dblock_locks DO ALSO NOTHING",
				"DROP RULE audit ON dblock_locks"},
		}
	}
	for kind, how := range made {
		e.exec(t, how[0])
		c := e.client(t)
		_, err := c.TryLock(t.Context(), "n")
		says(t, err, dblock.ErrConfig, kind+` "audit" on table dblock_locks`, "drop it")
		e.exec(t, how[1])
		unlock(t, lock(t, c, "n"))
	}
	if e.wiring.Kind != MySQL && e.wiring.Kind != MariaDB {
		return
	}
	// One that a user without the right TRIGGER does not see: its name is as those of dblock's own.
	e.exec(t, "CREATE TRIGGER dblock_hidden BEFORE UPDATE ON dblock_locks FOR EACH ROW SET NEW.host = NEW.host")
	c := e.client(t)
	_, err := c.TryLock(t.Context(), "n")
	says(t, err, dblock.ErrConfig, "a trigger on dblock's tables")
	e.free(t, "n")
	e.exec(t, "DROP TRIGGER dblock_hidden")
	unlock(t, lock(t, c, "n"))
}
