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
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

var once = inPlaces(own{
	{"OncePer runs a slot once, over all clients, however short the job", oncePer},
	{"a slot that failed is run again with RetryFailed, and not without", retryFailed},
	{"Every runs a job in the slot that goes on and in the next", every},
	{"OncePer whose interval has changed runs a slot once, and leaves none out", intervalChanges},
	{"OncePer with several intervals at once runs a job once while their slots have a run", intervalsAtOnce},
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

// Broken by a call that is not told the database's time: then Every comes when it should not, or
// not at all.
func every(t *testing.T, e *env) {
	c := e.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const interval = time.Second
	slots := make(chan time.Time, 9)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Every(ctx, "job", interval, func(_ context.Context, _ *dblock.Lock, slot time.Time) error {
			slots <- slot
			return nil
		})
	}()
	first, second := within(t, soon, "the first run", slots), within(t, soon, "the second run", slots)
	if d := second.Sub(first); d <= 0 || d%interval != 0 || !first.Equal(first.Truncate(interval)) {
		t.Errorf("run for %v and %v", first, second)
	}
	cancel()
	is(t, within(t, soon, "Every ends with its context", ended), nil)
}

func retryFailed(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	trouble := errors.New("trouble")
	job := func(c Client, err error, options ...jobs.Option) (bool, error) {
		return c.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			return err
		}, options...)
	}
	ran, err := job(a, trouble)
	if !ran {
		t.Error("it did not run")
	}
	is(t, err, trouble)
	if ran, err := job(b, nil); ran || err != nil {
		t.Errorf("a failed slot was run again: %v, %v", ran, err)
	}
	if ran, err := job(b, nil, jobs.RetryFailed(3, 0)); !ran || err != nil {
		t.Errorf("a failed slot was not run again: %v, %v", ran, err)
	}
	if ran, err := job(a, nil, jobs.RetryFailed(3, 0)); ran || err != nil {
		t.Errorf("a slot that went well was run again: %v, %v", ran, err)
	}
	for run, err := range a.Runs(t.Context(), "job") {
		if err != nil || run.Tries != 2 || run.Err != "" {
			t.Errorf("%+v, %v", run, err)
		}
	}
	if ran, err := a.OncePer(t.Context(), "nested", longSlot, func(ctx context.Context, _ *dblock.Lock,
		_ time.Time) error {
		ran, err := a.OncePer(ctx, "nested", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			return trouble
		}, jobs.RetryFailed(3, 0))
		if ran {
			t.Error("a job ran within itself")
		}
		return err
	}); !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	func() { // a panic is a failure
		defer func() { _ = recover() }()
		_, _ = a.OncePer(t.Context(), "other", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			panic("panic")
		})
	}()
	for run, err := range a.Runs(t.Context(), "other") {
		if err != nil || run.Err == "" || run.Ended.IsZero() {
			t.Errorf("%+v, %v", run, err)
		}
	}
	e.free(t, "once/other")
	_, err = a.OncePer(t.Context(), "job", time.Millisecond, func(context.Context, *dblock.Lock, time.Time) error {
		return nil
	})
	is(t, err, dblock.ErrInvalidOption)
	for _, name := range []string{"", strings.Repeat("n", 251)} {
		_, err = a.OncePer(t.Context(), name, longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			return nil
		})
		is(t, err, dblock.ErrInvalidName)
	}
	_, err = a.OncePer(t.Context(), "job", time.Second, nil)
	is(t, err, dblock.ErrInvalidOption)
}

func retryDead(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	began, end := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := a.OncePer(context.Background(), "job", longSlot, func(ctx context.Context, _ *dblock.Lock,
			_ time.Time) error {
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		end <- err
	}()
	within(t, soon, "the run begins", began)
	if ran, err := b.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
		return nil
	}, jobs.RetryFailed(3, 0)); ran || err != nil {
		t.Fatalf("beside a run that goes on: %v, %v", ran, err)
	}
	e.end(t, e.session(t, "once/job"))
	is(t, within(t, patience, "the run is told", end), dblock.ErrLost)
	eventually(t, patience, "the lock is free", func() bool {
		return e.session(t, "once/job") == "" || e.reclaimed(t, b, "once/job")
	})
	if ran, err := b.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
		return nil
	}); ran || err != nil {
		t.Errorf("without RetryFailed: %v, %v", ran, err)
	}
	if ran, err := b.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
		return nil
	}, jobs.RetryFailed(3, 0)); !ran || err != nil {
		t.Errorf("with RetryFailed: %v, %v", ran, err)
	}
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
	run := func(name string, interval time.Duration, want bool, options ...jobs.Option) {
		t.Helper()
		ran, err := c.OncePer(t.Context(), name, interval, func(context.Context, *dblock.Lock, time.Time) error {
			return nil
		}, options...)
		if err != nil || ran != want {
			t.Errorf("%s: OncePer(%v): %v, %v: want %v", name, interval, ran, err, want)
		}
	}
	daily := func(name string) { // a month of it, until yesterday
		for ago := range int64(30) {
			e.ranAt(t, name, day, 19_999-ago, 2, false)
		}
	}
	longer, shorter := e.slotWith(t, 19_986, 5), e.slotWith(t, 20_014, 5) // by about a minute
	if minute := longer - day; minute < 50*time.Second || minute > 80*time.Second {
		t.Fatalf("%v longer than %v", minute, day)
	}
	daily("a minute longer")
	run("a minute longer", longer, true)
	run("a minute longer", longer, false)
	run("a minute longer", day, false) // back
	run("a minute longer", shorter, false)
	daily("a minute shorter, then longer")
	run("a minute shorter, then longer", shorter, true)
	run("a minute shorter, then longer", longer, false)
	run("a minute shorter, then longer", day, false)
	runs := 0
	for _, err := range c.Runs(t.Context(), "a minute longer") {
		require.NoError(t, err)
		runs++
	}
	if runs != 30 { // the new one stands where the one with its number stood
		t.Errorf("%d runs are listed", runs)
	}

	e.ranAt(t, "today", day, 20_000, 4, false)
	run("today", longer, false)
	run("today", e.slotWith(t, 500_000, 5), true) // hourly: a tenth of a day ago was another hour
	run("today", day, false)
	hour := e.slotWith(t, 500_000, 5)
	for ago := range int64(3) {
		e.ranAt(t, "hourly", hour, 499_999-ago, 2, false)
	}
	run("hourly", day, false) // it ran today
	run("hourly", hour, true)
	e.ranAt(t, "failed", day, 20_000, 4, true)
	run("failed", longer, false)
	run("failed", longer, true, jobs.RetryFailed(3, 0))
	run("failed", longer, false, jobs.RetryFailed(3, 0))

	// The same number, by an interval that is longer by a second or so.
	before := e.slotWith(t, 20_000, 5)
	e.ranAt(t, "number", before, 20_000, 1, false)
	after := e.slotWith(t, 20_000, 2) // its slot began later than that run
	run("number", after, true)
	run("number", after, false)
	run("number", before, false)
	for run, err := range c.Runs(t.Context(), "number") {
		if err != nil || run.Tries != 1 || run.SlotEnds.UnixMicro() != 20_001*after.Microseconds() ||
			run.Ended.IsZero() || run.Err != "" {
			t.Errorf("%+v, %v", run, err)
		}
	}
}

func intervalsAtOnce(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t)}
	var all sync.WaitGroup
	var runs atomic.Int64
	for i, slot := range []int64{20_000, 19_986, 20_014, 500_000} { // all of them are now where they were a minute ago
		interval := e.slotWith(t, slot, 5)
		all.Go(func() {
			for range 5 {
				_, err := clients[i%2].OncePer(t.Context(), "job", interval, func(context.Context, *dblock.Lock,
					time.Time) error {
					runs.Add(1)
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.Equal(t, runs.Load(), 1, "runs")
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
		if ran, err := c.OncePer(t.Context(), name, longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			return nil
		}); !ran || err != nil {
			t.Fatal(ran, err)
		}
	}
	e.exec(t, "UPDATE dblock_runs SET failed = (1 = 1), detail = 'trouble' WHERE name = 'zeta'")
	var rows []string
	for i := range 120 { // more than two pages
		for slot, began := range []int{10, 30, 20} {
			rows = append(rows, fmt.Sprintf("('job %03d', %d, 1, '', 'h', '', %d, 99, '', 99)", i, slot, began))
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
		want := jobs.Run{Name: fmt.Sprintf("job %03d", i), Slot: 1, SlotEnds: time.UnixMicro(99), Token: 1, Host: "h",
			Began: time.UnixMicro(30), Ended: time.UnixMicro(99), Tries: 1}
		assert.Equal(t, run, want)
	}
	for range c.Jobs(t.Context()) {
		break
	}
}

func lockTxAtRest(t *testing.T, e *env) {
	app := e.app(t, 6)
	a := e.clientOf(t, app)
	const rest = 20 * time.Second
	began := e.now(t)
	unlock(t, lock(t, a, "n", dblock.MinHold(rest)))
	tx := beginTx(t, app, e.levels()[0])
	for call, err := range map[string]error{
		"TryLock": refused(t, a, "n"), "TryLockTx": a.TryLockTx(t.Context(), tx, "n"),
	} {
		is(t, err, dblock.ErrNotAcquired)
		if !strings.Contains(err.Error(), ": MinHold)") {
			t.Errorf("%s: %v: want the reason", call, err)
		}
	}
	rollback(t, tx)
	tx = beginTx(t, app, e.levels()[0])
	locked := make(chan error, 1)
	go func() { locked <- a.LockTx(t.Context(), tx, "n") }()
	e.queued(t, "n", 1)
	e.advance(t, rest-2*time.Second)
	select {
	case err := <-locked:
		t.Fatalf("locked before the name has rested: %v", err)
	default:
	}
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
		second := locking(context.Background(), b, "n", option)
		e.queued(t, "n", 1)
		third := locking(context.Background(), c, "n")
		e.queued(t, "n", 2)
		select { // it looks after 100 ms
		case <-time.After(300 * time.Millisecond):
		case <-third:
			t.Fatal("it was not held")
		}
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
		waiter := locking(context.Background(), b, "n")
		e.queued(t, "n", 1)
		if !late {
			unlock(t, first)
		}
		e.advance(t, rest/2)
		e.queued(t, "n", 1)
		e.advanceUntil(t, rest/2+time.Second, "the waiter has the lock", func() bool { return len(waiter) > 0 })
		unlock(t, granted(t, soon, waiter))
	}
	_, err := a.Lock(t.Context(), "n", dblock.MinHold(0))
	is(t, err, dblock.ErrInvalidOption)
	e.idle(t, "n")
}
