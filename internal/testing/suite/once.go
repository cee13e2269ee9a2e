package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

var once = inPlaces(own{
	{"OncePer runs a slot once, over all clients, however short the job", oncePer},
	{"a slot that failed is run again with RetryFailed, and not without", retryFailed},
	{"the history of a job has one event for each run, and none of those who found the slot run", onlyRunsAreEvents},
	{"OncePer whose interval has changed runs a slot once, and leaves none out", intervalChanges},
	{"Jobs returns the latest run of each job, whatever its slot, in the order of names", listJobs},
}, moving{
	{"LockTx waits until a name has rested", lockTxAtRest},
	{"a name has a cool-down of MinHold, and its waiters get it then", minHold},
	{"a waiter behind a cool-down or a lease that it has not seen is told of it", forewarned},
}, flowing{
	{"runs of a job do not overlap", runsDoNotOverlap},
	{"a slot of a dead process is run again with RetryFailed, and not without", retryDead},
})

const longSlot = 1000 * time.Hour // no test sees its end

// nothing is a job that does nothing.
func nothing(context.Context, *dblock.Lock, time.Time) error { return nil }

// per calls OncePer for a job that does nothing.
func per(t testing.TB, c Client, name string, interval time.Duration, want bool, options ...jobs.Option) {
	t.Helper()
	if ran, err := c.OncePer(t.Context(), name, interval, nothing, options...); ran != want || err != nil {
		t.Errorf("%s: OncePer(%v): %v, %v: want %v", name, interval, ran, err, want)
	}
}

// oncePer: a call that begins and ends in the same slot leaves that slot run, unless the run of an
// earlier one went on in it.
func oncePer(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t), e.client(t)}
	const slot = 300 * time.Millisecond
	var all sync.WaitGroup
	var runs atomic.Int64
	var asked sync.Map // slots in which a whole call was made
	until := time.Now().Add(7 * slot)
	for _, c := range clients {
		for range 2 {
			all.Go(func() {
				for time.Now().Before(until) {
					before := e.now(t) / slot.Microseconds()
					_, err := c.OncePer(t.Context(), "job", slot, func(context.Context, *dblock.Lock, time.Time) error {
						runs.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
					if e.now(t)/slot.Microseconds() == before {
						asked.Store(before, true)
					}
				}
			})
		}
	}
	all.Wait()
	listed, late := map[int64]bool{}, map[int64]bool{}
	for run, err := range clients[0].Runs(t.Context(), "job") {
		require.NoError(t, err)
		if listed[run.Slot] || run.Ended.IsZero() || run.Err != "" || run.Tries != 1 || run.Token == 0 ||
			run.Began.Sub(run.SlotEnds) > soon {
			t.Errorf("%+v", run)
		}
		listed[run.Slot] = true
		for s := run.Slot + 1; s <= run.Ended.UnixMicro()/slot.Microseconds(); s++ {
			late[s] = true
		}
	}
	if int64(len(listed)) != runs.Load() || runs.Load() == 0 {
		t.Errorf("%d runs, %d listed", runs.Load(), len(listed))
	}
	asked.Range(func(slot, _ any) bool {
		if s := slot.(int64); !listed[s] && !late[s] {
			t.Errorf("slot %d was asked for, and not run", slot)
		}
		return true
	})
}

func retryFailed(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	trouble := errors.New("trouble")
	fails := func(context.Context, *dblock.Lock, time.Time) error { return trouble }
	ran, err := a.OncePer(t.Context(), "job", longSlot, fails)
	if is(t, err, trouble); !ran {
		t.Error("it did not run")
	}
	per(t, b, "job", longSlot, false)
	per(t, b, "job", longSlot, true, jobs.RetryFailed(3, 0))
	per(t, a, "job", longSlot, false, jobs.RetryFailed(3, 0)) // it went well
	for run, err := range a.Runs(t.Context(), "job") {
		if err != nil || run.Tries != 2 || run.Err != "" {
			t.Errorf("%+v, %v", run, err)
		}
	}
	if ran, err := a.OncePer(t.Context(), "nested", longSlot, func(ctx context.Context, _ *dblock.Lock,
		_ time.Time) error {
		ran, err := a.OncePer(ctx, "nested", longSlot, fails, jobs.RetryFailed(3, 0))
		if ran {
			t.Error("a job ran within itself")
		}
		return err
	}); !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	is(t, assert.ErrOf(a.OncePer(t.Context(), "job", time.Millisecond, nothing)), dblock.ErrInvalidOption)
	for _, name := range []string{"", strings.Repeat("n", 251)} {
		is(t, assert.ErrOf(a.OncePer(t.Context(), name, longSlot, nothing)), dblock.ErrInvalidName)
	}
	is(t, assert.ErrOf(a.OncePer(t.Context(), "job", time.Second, nil)), dblock.ErrInvalidOption)
}

// Broken by an event for every call that takes the lock to see whether the slot was run.
func onlyRunsAreEvents(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithEvents()), e.client(t, dblock.WithEvents())
	slot := e.times(t, 1)[0]
	trouble := errors.New("trouble")
	failing := func(context.Context, *dblock.Lock, time.Time) error { return trouble }
	_, err := a.OnceAt(t.Context(), "job", slot, failing)
	is(t, err, trouble)
	for _, c := range []Client{a, b, b, a} {
		ran, err := c.OnceAt(t.Context(), "job", slot, nothing)
		require.NoError(t, err)
		assert.Equal(t, ran, false, "it ran")
	}
	_, err = b.OnceAt(t.Context(), "job", slot, nothing, jobs.RetryFailed(1, 0))
	require.NoError(t, err)
	unlock(t, lock(t, a, "other"))
	for _, c := range []Client{a, b} {
		require.NoError(t, c.Close(t.Context())) // it writes the events
	}
	var told []string
	for _, event := range all(t, e.client(t).Events(t.Context(), inspect.EventFilter{})) {
		told = append(told, event.Name+": "+event.Kind+": "+event.Detail)
	}
	when := "slot " + slot.UTC().Format(time.RFC3339Nano)
	slices.Sort(told) // each client writes its own
	assert.Equal(t, strings.Join(told, "\n"), strings.Join([]string{
		"once/job: ran: " + when, "once/job: ran: " + when + ", failed: trouble",
		"other: granted: ", "other: released: ",
	}, "\n"), "the history")
}

func retryDead(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	began := make(chan struct{})
	end := async(func() error {
		_, err := a.OncePer(context.Background(), "job", longSlot, func(ctx context.Context, _ *dblock.Lock,
			_ time.Time) error {
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		return err
	})
	within(t, soon, "the run begins", began)
	per(t, b, "job", longSlot, false, jobs.RetryFailed(3, 0)) // beside a run that goes on
	e.end(t, e.session(t, "once/job"))
	is(t, within(t, patience, "the run is told", end), dblock.ErrLost)
	eventually(t, patience, "the lock is free", func() bool {
		return e.session(t, "once/job") == "" || e.reclaimed(t, b, "once/job")
	})
	per(t, b, "job", longSlot, false)
	per(t, b, "job", longSlot, true, jobs.RetryFailed(3, 0))
}

// reclaimed has a client take a name from dead holders, and release it.
func (e *env) reclaimed(t testing.TB, c Client, name string) bool {
	l, err := c.TryLock(t.Context(), name)
	return err == nil && l.Unlock(t.Context()) == nil
}

// slotWith returns the interval for which the database's clock is now in the slot with the given
// number, so many tenths of the interval after its beginning.
func (e *env) slotWith(t testing.TB, slot, tenths int64) time.Duration {
	t.Helper()
	return time.Duration(e.now(t)*10/(10*slot+tenths)) * time.Microsecond
}

// ranAt writes a run of an interval's slot, begun so many tenths after the slot's beginning.
func (e *env) ranAt(t testing.TB, name string, interval time.Duration, slot, tenths int64, failed bool) {
	t.Helper()
	long := interval.Microseconds()
	began := slot*long + tenths*long/10
	e.exec(t, "INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, detail, "+
		"slot_ends) VALUES (?, ?, 1, '', '', '', ?, ?, '', ?)",
		name, slot, began, began+1, (slot+1)*long)
	if failed {
		e.exec(t, "UPDATE dblock_runs SET failed = (1 = 1) WHERE name = ? AND slot = ?", name, slot)
	}
}

// intervalChanges: slots of two intervals may have the same number. Of slots of 25 hours, the
// number is now about 20,000.
func intervalChanges(t *testing.T, e *env) {
	c := e.client(t)
	day := e.slotWith(t, 20_000, 5)
	daily := func(name string) { // a month of it, until yesterday
		for ago := range int64(30) {
			e.ranAt(t, name, day, 19_999-ago, 2, false)
		}
	}
	longer := e.slotWith(t, 19_986, 5) // by about a minute
	daily("a minute longer")
	per(t, c, "a minute longer", longer, true)
	per(t, c, "a minute longer", longer, false)
	per(t, c, "a minute longer", day, false) // back
	// the new one stands where the one with its number stood
	assert.Equal(t, len(all(t, c.Runs(t.Context(), "a minute longer"))), 30, "runs are listed")

	e.ranAt(t, "today", day, 20_000, 4, false)
	per(t, c, "today", longer, false)
	per(t, c, "today", e.slotWith(t, 500_000, 5), true) // hourly: a tenth of a day ago was another hour
	per(t, c, "today", day, false)
	hour := e.slotWith(t, 500_000, 5)
	for ago := range int64(3) {
		e.ranAt(t, "hourly", hour, 499_999-ago, 2, false)
	}
	per(t, c, "hourly", day, false) // it ran today
	per(t, c, "hourly", hour, true)
	e.ranAt(t, "failed", day, 20_000, 4, true)
	per(t, c, "failed", longer, false)
	per(t, c, "failed", longer, true, jobs.RetryFailed(3, 0))
	per(t, c, "failed", longer, false, jobs.RetryFailed(3, 0))

	// The same number, by an interval that is longer by a second or so.
	before := e.slotWith(t, 20_000, 5)
	e.ranAt(t, "number", before, 20_000, 1, false)
	after := e.slotWith(t, 20_000, 2) // its slot began later than that run
	per(t, c, "number", after, true)
	per(t, c, "number", after, false)
	per(t, c, "number", before, false)
	for run, err := range c.Runs(t.Context(), "number") {
		if err != nil || run.Tries != 1 || run.SlotEnds.UnixMicro() != 20_001*after.Microseconds() ||
			run.Ended.IsZero() || run.Err != "" {
			t.Errorf("%+v, %v", run, err)
		}
	}
}

func runsDoNotOverlap(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t)}
	const slot, enough = 5 * time.Second, 4
	var inside, runs atomic.Int64
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for runs.Load() < enough && !t.Failed() {
				_, err := c.OncePer(t.Context(), "job", slot, func(ctx context.Context, _ *dblock.Lock,
					_ time.Time) error {
					if inside.Add(1) > 1 {
						t.Error("two runs at once")
					}
					runs.Add(1)
					// longer than a slot
					for ends := e.now(t) + 2*slot.Microseconds(); e.now(t) < ends && ctx.Err() == nil; {
						time.Sleep(3 * time.Millisecond)
					}
					inside.Add(-1)
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}

func listJobs(t *testing.T, e *env) {
	c := e.client(t, dblock.WithoutReaper())
	if listed := all(t, c.Jobs(t.Context())); len(listed) > 0 {
		t.Errorf("%+v, before any has run", listed)
	}
	for _, name := range []string{"a real job", "zeta"} {
		per(t, c, name, longSlot, true)
	}
	e.exec(t, "UPDATE dblock_runs SET failed = (1 = 1), detail = 'trouble' WHERE name = 'zeta'")
	var rows []string
	for i := range 120 { // more than two pages
		for slot, began := range []int{10, 30, 20} {
			rows = append(rows, fmt.Sprintf("('job %03d', %d, 1, '', 'h', '', %d, 99, '', 100)", i, slot, began))
		}
	}
	e.exec(t, "INSERT INTO dblock_runs (name, slot, token, session_id, host, thread, began_at, ended_at, detail, "+
		"slot_ends) VALUES "+strings.Join(rows, ", "))
	listed := all(t, c.Jobs(t.Context()))
	require.Equal(t, len(listed), 122, "jobs")
	if first := listed[0]; first.Name != "a real job" || first.Token == 0 || first.Ended.IsZero() || first.Err != "" ||
		first.Tries != 1 {
		t.Errorf("%+v", first)
	}
	if last := listed[121]; last.Name != "zeta" || last.Err != "trouble" {
		t.Errorf("%+v", last)
	}
	for i, run := range listed[1:121] {
		want := jobs.Run{Name: fmt.Sprintf("job %03d", i), Slot: 1, SlotBegins: time.UnixMicro(50),
			SlotEnds: time.UnixMicro(100), Token: 1, Host: "h", Began: time.UnixMicro(30),
			Ended: time.UnixMicro(99), Tries: 1}
		assert.Equal(t, run, want)
	}
	for range c.Jobs(t.Context()) {
		break
	}
}

func lockTxAtRest(t *testing.T, e *env) {
	app, a := e.appClient(t, 6)
	const rest = 20 * time.Second
	began := e.now(t)
	unlock(t, lock(t, a, "n", dblock.MinHold(rest)))
	tx := beginTx(t, app, e.levels()[0])
	for _, err := range []error{refused(t, a, "n"), a.TryLockTx(t.Context(), tx, "n")} {
		says(t, err, dblock.ErrNotAcquired, ": MinHold)")
	}
	rollback(t, tx)
	tx = beginTx(t, app, e.levels()[0])
	locked := async(func() error { return a.LockTx(t.Context(), tx, "n") })
	e.queued(t, "n", 1)
	e.advance(t, rest-2*time.Second)
	stillWaits(t, 0, locked)
	e.advance(t, 3*time.Second)
	is(t, within(t, soon, "the transaction has the name", locked), nil)
	commit(t, tx)
	if took := e.now(t) - began; took < rest.Microseconds() {
		t.Errorf("locked after %d µs", took)
	}
	e.idle(t, "n")
}

// forewarned: the last waiter has looked while a holder without a visible end had the name. It
// would look again much later than soon.
func forewarned(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t, dblock.WithTTL(time.Hour))
	for _, option := range []dblock.LockOption{dblock.MinHold(20 * time.Second), dblock.Lease(20 * time.Second)} {
		first := lock(t, a, "n")
		second := e.waiter(t, b, "n", option)
		third := e.waiter(t, c, "n")
		stillWaits(t, 300*time.Millisecond, third) // it looks after 100 ms
		unlock(t, first)
		l := granted(t, soon, second)
		if e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = 'n' AND expires_at IS NULL") == 1 {
			unlock(t, l) // the cool-down begins
		}
		e.advance(t, 21*time.Second)
		unlock(t, granted(t, soon, third))
		_ = l.Unlock(t.Context())
	}
	e.idle(t, "n")
}

func minHold(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	unlock(t, lock(t, a, "m", dblock.MinHold(time.Hour))) // no test sees its end
	refused(t, b, "m")
	refused(t, b, "m", dblock.Shared())
	if info, err := a.Inspect(t.Context(), "m"); err != nil || info.Rests <= 0 || len(info.Holders) > 0 {
		t.Errorf("%+v, %v", info, err)
	}
	const rest = 2 * time.Minute
	for _, late := range []bool{true, false} { // the waiter comes during the cool-down, or while the name is held
		first := lock(t, a, "n", dblock.MinHold(rest))
		if late {
			unlock(t, first)
		}
		waiter := e.waiter(t, b, "n")
		if !late {
			unlock(t, first)
		}
		e.advance(t, rest/2)
		e.queued(t, "n", 1)
		e.advanceUntil(t, rest/2+time.Second, "the waiter has the lock", func() bool { return len(waiter) > 0 })
		unlock(t, granted(t, soon, waiter))
	}
	is(t, assert.ErrOf(a.Lock(t.Context(), "n", dblock.MinHold(0))), dblock.ErrInvalidOption)
	e.idle(t, "n")
}
