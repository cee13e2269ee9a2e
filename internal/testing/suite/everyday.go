package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/reaper"
)

// everyday does once everything that an application may do, with clients on the environment's
// database, and in transactions that write a table of the application's.
func everyday(t *testing.T, e *env, table string) {
	app := e.app(t, 7)
	options := []dblock.Option{dblock.WithEvents(), dblock.WithoutReaper()} // the test sweeps by itself, and counts
	a, b := e.clientOf(t, app, options...), e.client(t, options...)
	t.Run("locks", func(t *testing.T) { everydayLocks(t, e, a, b) })
	t.Run("transactions", func(t *testing.T) { everydayTransactions(t, e, app, a, b, table) })
	t.Run("jobs", func(t *testing.T) { everydayJobs(t, a) })
	t.Run("inspection", func(t *testing.T) { everydayInspection(t, e, a, b) })
	t.Run("reaper", func(t *testing.T) { everydayReaper(t, e, app, a) })
	for _, renew := range []bool{false, true} {
		assert.NoError(t, assert.ErrOf(app.Backend.Incarnation(t.Context(), renew, 1)))
	}
}

func everydayLocks(t *testing.T, e *env, a, b Client) {
	held, clients := lock(t, a, "n"), []Client{a, b}
	for i := range 4 {
		next := clients[(i+1)%2]
		refused(t, next, "n")
		waiter := e.waiter(t, next, "n")
		unlock(t, held)
		held = granted(t, soon, waiter) // before anybody would look by itself
	}
	unlock(t, held)

	reader, other := lock(t, a, "shared", dblock.Shared()), lock(t, b, "shared", dblock.Shared())
	writer := e.waiter(t, b, "shared")
	unlock(t, other)
	unlock(t, reader)
	last := granted(t, soon, writer)
	is(t, last.Downgrade(t.Context()), nil)
	is(t, last.TryUpgrade(t.Context()), nil)
	unlock(t, last)
	permits := lock(t, a, "permits", dblock.Permits(2, 3), dblock.Metadata(map[string]string{"a": "b"}))
	refused(t, b, "permits", dblock.Permits(2, 3))
	unlock(t, permits)
	unlock(t, lock(t, a, "rests", dblock.MinHold(50*time.Millisecond)))

	all, err := a.LockAll(t.Context(), []string{"all/1", "all/2"})
	is(t, err, nil)
	is(t, all.Unlock(t.Context()), nil)
	held = lock(t, a, "n")
	_, err = b.Lock(limited(t, 100*time.Millisecond), "n")
	calledOff(t, err, context.DeadlineExceeded)
	unlock(t, held)
	mine, again := lock(t, a, "own", dblock.Owner("h", "t")), lock(t, b, "own", dblock.Owner("h", "t"))
	rising(t, mine.Token(), again.Token())
	unlock(t, again)
}

func everydayTransactions(t *testing.T, e *env, app App, a, b Client, table string) {
	for _, options := range [][]dblock.LockOption{nil, {dblock.Shared()}} {
		l := lock(t, a, "guarded", options...)
		waiter := e.waiter(t, b, "guarded")
		tx := beginTx(t, app, e.readCommitted())
		is(t, a.Guard(t.Context(), tx, l), nil)
		is(t, tx.exec(t.Context(), "INSERT INTO "+table+" (n) VALUES (1)"), nil)
		is(t, a.UnlockTx(t.Context(), tx, l), nil)
		commit(t, tx)
		unlock(t, l) // says that the transaction has ended
		unlock(t, granted(t, soon, waiter))
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM "+table), 2, "rows are committed")
	for range 2 { // the second finds what the first has prepared
		tx := beginTx(t, app, e.readCommitted())
		lockTx(t, a, tx, "tx", "tx/2")
		if e.wiring.Kind != SQLite { // where it has locked the database
			refused(t, b, "tx")
		}
		rollback(t, tx)
	}
	l := lock(t, b, "tx")
	tx := beginTx(t, app, e.readCommitted())
	is(t, a.TryLockTx(brief(t), tx, "tx"), dblock.ErrNotAcquired)
	rollback(t, tx)
	unlock(t, l)
}

func everydayJobs(t *testing.T, c Client) {
	broken := errors.New("broken")
	ran, err := c.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
		return broken
	})
	if is(t, err, broken); !ran {
		t.Error("the job did not run")
	}
	per(t, c, "job", longSlot, true, jobs.RetryFailed(3, 0))
	per(t, c, "job", longSlot, false, jobs.RetryFailed(3, 0))
	for run, err := range c.Runs(t.Context(), "job") {
		if err != nil || run.Tries != 2 {
			t.Errorf("%+v, %v", run, err)
		}
	}
}

func everydayInspection(t *testing.T, e *env, a, b Client) {
	l := lock(t, a, "seen")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan inspect.Info, 100)
	go func() {
		defer close(seen)
		for info, err := range b.Watch(ctx, "seen") {
			if err != nil {
				return
			}
			seen <- info
		}
	}()
	within(t, soon, "the name is watched", seen)
	is(t, l.Record(t.Context(), "seen", "why"), nil)
	is(t, b.Ask(t.Context(), "seen", "why"), nil)
	within(t, soon, "the holder is asked", l.Asked())
	if info, err := b.Inspect(t.Context(), "seen"); err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	names := 0
	for _, err := range b.List(t.Context(), inspect.Filter{Idle: true, Older: time.Microsecond}) {
		is(t, err, nil)
		names++
	}
	if names == 0 {
		t.Error("no names")
	}
	breaks(t, b, "seen", 1)
	ended(t, soon, l, dblock.ErrLost)
	cancel()
	for range seen {
		continue // until the iteration is over
	}
	e.told(t, a, "seen", "seen", 1)
	e.told(t, a, "seen", "granted", 1)
	e.told(t, a, "seen", "broken", 1)
}

func everydayReaper(t *testing.T, e *env, app App, a Client) {
	if e.wiring.Kind != SQLite { // which has no guards
		wanted := lock(t, a, "wanted")
		tx := beginTx(t, app, e.readCommitted())
		is(t, a.Guard(t.Context(), tx, wanted), nil)
		ctx := limited(t, 500*time.Millisecond)
		is(t, assert.ErrOf(a.Break(ctx, "wanted", "a guard refuses it")), dblock.ErrNotAcquired)
		rollback(t, tx)
		unlock(t, wanted)
		e.exec(t, "UPDATE dblock_wanted SET wanted_until = 1")
	}
	e.orphan(t, "of the dead", "dead", -time.Second)
	unlock(t, granted(t, soon, locking(context.Background(), a, "of the dead")))
	e.orphan(t, "left behind", "gone", -time.Second)
	e.orphans(t, 2, "gone", 1)
	e.waiters(t, 2, "dead", 1)
	e.exec(t, "UPDATE dblock_runs SET slot_ends = 2, ended_at = 1")
	for again := range 2 { // the second forgets what the first has cleared up, if it is not forgotten yet
		report, err := reaper.Sweep(t.Context(), app.engine(), reaper.Retention(0), reaper.History(0))
		if err != nil || again == 0 && report.Expired == 0 {
			t.Errorf("%v, %v", report, err)
		}
	}
	for _, left := range []string{"dblock_runs", "dblock_events WHERE name = 'seen'", "dblock_wanted"} {
		if e.wiring.Kind == SQLite && left == "dblock_wanted" {
			continue
		}
		if n := e.number(t, "SELECT count(*) FROM "+left); n > 0 {
			t.Errorf("%d rows of %s are left", n, left)
		}
	}
}
