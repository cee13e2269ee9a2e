package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/reaper"
)

var upgrading = inPlaces(own{
	{"tables that a migration has only begun are not used", unfinished},
	{"tables that were emptied are told as such, and migrate.Up fills them", emptied},
}, moving{
	{"a session goes on in tables that were migrated underneath to a later version that it can use", laterVersion},
	{"a session ends, and says why, in tables that were migrated underneath to a version that it cannot use",
		refusedVersion},
})

// later makes the tables those of a later version that this build can use.
func (e *env) later(t testing.TB) {
	t.Helper()
	for _, table := range []string{"dblock_sessions", "dblock_heartbeats", "dblock_locks", "dblock_shares",
		"dblock_waiters",
		"dblock_events", "dblock_runs", "dblock_watchers"} {
		e.exec(t, "ALTER TABLE "+table+" ADD COLUMN made_up INTEGER NOT NULL DEFAULT 7")
	}
	e.exec(t, "UPDATE dblock_schema SET version = ?", driver.SchemaVersion+1)
}

// newer is a build for the later version: the column means something to it.
type newer struct {
	driver.Backend
	mark func(name string)
}

func (n newer) Schema(ctx context.Context) (driver.Schema, error) {
	schema, err := n.Backend.Schema(ctx)
	if schema.Version != driver.SchemaVersion+1 {
		return schema, errors.New("the newer build needs the later version")
	}
	schema.Version--
	return schema, err
}

func (n newer) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	results, err := n.Backend.Run(ctx, ops...)
	if take, takes := ops[0].(protocol.Take); takes && len(results) == 1 && results[0].Done() {
		n.mark(take.Name)
	}
	return results, err
}

// newerClient is a client of a newer build.
func (e *env) newerClient(t testing.TB) Client {
	t.Helper()
	a := e.app(t, 5)
	a.Backend = (newer{a.Backend, func(name string) {
		e.exec(t, "UPDATE dblock_locks SET made_up = made_up + 1 WHERE name = ?", name)
	}})
	return e.clientOf(t, a)
}

func laterVersion(t *testing.T, e *env) {
	old := e.client(t)
	held, shared := lock(t, old, "held"), lock(t, old, "shared", dblock.Shared())
	first := lock(t, old, "waited for")
	line := e.line(t, "waited for", 1, []Client{old}, background)
	e.later(t)

	now := e.now(t)
	e.advanceUntil(t, longTTL, "a heartbeat succeeds afterwards", func() bool {
		return e.number(t, "SELECT max(expires_at) FROM dblock_heartbeats") > now+longTTL.Microseconds()
	})
	live(t, held)
	live(t, shared)
	assert.NoError(t, old.CheckSchema(t.Context()))
	assert.NoError(t, migrate.Up(t.Context(), e.look, e.db.Engine))

	// Locks pass between builds both ways, by release and by the death of the holder.
	young := e.newerClient(t)
	behind := e.waiter(t, young, "waited for")
	served(t, first, line[0], behind)
	theirs := lock(t, young, "theirs")
	assert.Equal(t, e.number(t, "SELECT made_up FROM dblock_locks WHERE name = 'theirs'"), 8,
		"the newer build's column is")
	ours := e.waiter(t, old, "theirs")
	unlock(t, theirs)
	next := granted(t, soon, ours)
	rising(t, theirs.Token(), next.Token())
	unlock(t, next)
	e.end(t, e.session(t, "held"))
	e.advance(t, longTTL/5+time.Second) // to the next heartbeat
	ended(t, soon, held, dblock.ErrLost)
	unlock(t, granted(t, soon, locking(t.Context(), young, "held")))
	dead := lock(t, young, "of the dead")
	e.end(t, e.session(t, "of the dead"))
	unlock(t, granted(t, soon, locking(t.Context(), old, "of the dead")))
	e.advance(t, longTTL/5+time.Second)
	ended(t, soon, dead, dblock.ErrLost)

	// Everything else that writes a row of a table with a column more.
	all, err := old.LockAll(t.Context(), []string{"a", "b"})
	is(t, err, nil)
	is(t, all.Unlock(t.Context()), nil)
	per(t, old, "job", longSlot, true)
	per(t, old, "job", longSlot, false)
	permits := lock(t, old, "permits", dblock.Permits(2, 3))
	is(t, old.Ask(t.Context(), "permits", "made up"), nil)
	is(t, permits.Record(t.Context(), "madeup", "detail"), nil)
	unlock(t, permits)
	for _, err := range old.Events(t.Context(), inspect.EventFilter{}) {
		is(t, err, nil)
	}
	for _, err := range old.List(t.Context(), inspect.Filter{}) {
		is(t, err, nil)
	}
	assert.NoError(t, assert.ErrOf(reaper.Sweep(t.Context(), e.app(t, 2).engine())))
}

func refusedVersion(t *testing.T, e *env) {
	c := e.client(t)
	held := lock(t, c, "held")
	line := e.line(t, "held", 1, []Client{e.client(t)}, background)
	e.exec(t, "UPDATE dblock_schema SET version = ?, usable_from = ?", driver.SchemaVersion+1, driver.SchemaVersion+1)

	refused := func(err error) {
		t.Helper()
		says(t, err, dblock.ErrSchema, fmt.Sprintf("at version %d", driver.SchemaVersion+1),
			fmt.Sprintf("builds for version %d and later", driver.SchemaVersion+1),
			fmt.Sprintf("this build is for version %d", driver.SchemaVersion), "deploy", "migrate.DownTo")
	}
	e.advance(t, longTTL/3+time.Second) // to the next heartbeat, and to the waiter's next look
	ended(t, soon, held, dblock.ErrLost)
	refused(context.Cause(held.Context()))
	refused(within(t, soon, "the waiter returns", line[0]).err)
	refused(c.CheckSchema(t.Context()))
	_, err := c.TryLock(t.Context(), "other")
	refused(err)
	_, err = reaper.Sweep(t.Context(), e.app(t, 2).engine())
	refused(err)
	if holder := e.session(t, "held"); holder == "" {
		t.Error("this build has changed tables that it cannot use")
	}
	up, err := e.app(t, 3).Backend.Upkeep(t.Context(), "s")
	is(t, err, nil)
	defer up.Close()
	before := e.text(t, "SELECT max(expires_at) FROM dblock_heartbeats")
	alive, err := up.Heartbeat(t.Context(), e.session(t, "held"), time.Hour)
	refused(err)
	if after := e.text(t, "SELECT max(expires_at) FROM dblock_heartbeats"); alive || after != before {
		t.Errorf("a heartbeat of this build still counts: %v, %s, then %s", alive, before, after)
	}

	// Back to a version that this build can use.
	e.exec(t, "UPDATE dblock_schema SET version = ?, usable_from = ?", driver.SchemaVersion, driver.SchemaVersion)
	again := locking(t.Context(), c, "held")
	e.advanceUntil(t, 2*longTTL, "the dead holder is succeeded", func() bool { return len(again) > 0 })
	unlock(t, granted(t, soon, again))
}

// On MySQL and MariaDB a migration that was cut off leaves such tables.
func unfinished(t *testing.T, e *env) {
	e.exec(t, "UPDATE dblock_schema SET version = ?", 0)
	c := e.client(t)
	_, err := c.Lock(t.Context(), "any")
	schema(t, err)
	_, err = reaper.Sweep(t.Context(), e.app(t, 2).engine())
	schema(t, err)
}

// Broken by the advice to run migrate.Up on tables that its history has as applied: it did nothing.
func emptied(t *testing.T, e *env) {
	c := e.client(t)
	first := lock(t, c, "n")
	database := e.text(t, "SELECT database_id FROM dblock_schema")
	for _, table := range []string{"schema", "locks", "heartbeats", "sessions"} {
		e.exec(t, "DELETE FROM dblock_"+table)
	}
	other := e.client(t)
	_, err := other.Lock(t.Context(), "n")
	says(t, err, dblock.ErrSchema, "were emptied", "run migrate.Up", "writes it again")
	for range 2 {
		is(t, migrate.Up(t.Context(), e.look, e.db.Engine), nil)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_schema"), 1, "rows with a version")
	next := lock(t, other, "n")
	rising(t, first.Token(), next.Token())
	unlock(t, next)
	usable := func() {
		t.Helper()
		after := e.text(t, "SELECT database_id FROM dblock_schema")
		if e.db.Engine == migrate.MySQL && after != database {
			t.Errorf("the id of the database is %q, and that of its rows %q", after, database)
		}
		a := e.app(t, 5)
		tx := beginTx(t, a, e.readCommitted())
		lockTx(t, e.clientOf(t, a), tx, "n")
		commit(t, tx)
	}
	usable()

	// The history was emptied, too.
	e.exec(t, "DELETE FROM "+migrate.Locks.Table())
	e.exec(t, "DELETE FROM dblock_schema")
	for range 2 {
		is(t, migrate.Up(t.Context(), e.look, e.db.Engine), nil)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM "+migrate.Locks.Table()+" WHERE version_id > 0"),
		driver.SchemaVersion, "versions in the history")
	usable()

	// The application's own history made them.
	e.exec(t, "DROP TABLE "+migrate.Locks.Table())
	e.exec(t, "DELETE FROM dblock_schema")
	is(t, migrate.Up(t.Context(), e.look, e.db.Engine), nil)
	is(t, e.client(t).CheckSchema(t.Context()), nil)
	usable()
}
