package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/reaper"
)

var moments = inPlaces(own{
	{"OnceAt runs a slot once, over all clients, and tells the job its slot", onceAt},
	{"OnceAt runs no slot before one that has run", onceAtInOrder},
	{"OnceAt refuses a slot that is more than a minute ahead of the database's clock", onceAtAhead},
	{"a slot of OnceAt that failed is run again with RetryFailed, and not after a later one", onceAtAgain},
	{"runs of OnceAt do not overlap", onceAtAlone},
	{"a job passes from OncePer to OnceAt and back", onceAtAndPer},
	{"the latest slot of OnceAt outlives the history", onceAtPurged},
	{"OncePer tells the job when its slot began", toldSlot},
})

// noted is a job that notes its slots.
type noted struct {
	mu    sync.Mutex
	slots []time.Time
}

func (n *noted) job(_ context.Context, _ *dblock.Lock, slot time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slots = append(n.slots, slot)
	return nil
}

// times are the last so many seconds before the database's time, the earliest first.
func (e *env) times(t testing.TB, n int) (times []time.Time) {
	t.Helper()
	now := time.UnixMicro(e.now(t))
	for i := range n {
		times = append(times, now.Add(time.Duration(i-n)*time.Second))
	}
	return times
}

// at calls OnceAt for a job that does nothing.
func at(t *testing.T, c Client, name string, slot time.Time, want bool, options ...jobs.Option) {
	t.Helper()
	ran, err := c.OnceAt(t.Context(), name, slot, func(context.Context, *dblock.Lock, time.Time) error { return nil },
		options...)
	if ran != want || err != nil {
		t.Errorf("%s at %v: ran %v, %v: want %v", name, slot, ran, err, want)
	}
}

func onceAt(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t), e.client(t)}
	zone := time.FixedZone("there", 5*3600)
	var got noted
	for i, slot := range e.times(t, 5) {
		slot = slot.In(zone).Add(300 * time.Nanosecond)
		var all sync.WaitGroup
		var ran atomic.Int64
		for _, c := range clients {
			for range 2 {
				all.Go(func() {
					mine, err := c.OnceAt(t.Context(), "job", slot, got.job)
					assert.NoError(t, err)
					if mine {
						ran.Add(1)
					}
				})
			}
		}
		all.Wait()
		if ran.Load() != 1 || len(got.slots) != i+1 {
			t.Fatalf("%d calls ran slot %d, and there are %d runs", ran.Load(), i, len(got.slots))
		}
		if told := got.slots[i]; told != slot.Truncate(time.Microsecond) {
			t.Errorf("told %v: want %v", told, slot)
		}
	}
	i := len(got.slots)
	for run, err := range clients[0].Runs(t.Context(), "job") {
		i--
		slot := got.slots[i]
		if err != nil || run.Slot != slot.UnixMicro() || !run.SlotEnds.Equal(slot) || run.Tries != 1 || run.Err != "" ||
			run.Ended.IsZero() {
			t.Errorf("%+v, %v", run, err)
		}
	}
	assert.Equal(t, i, 0, "slots are not listed")
	for _, slot := range []time.Time{{}, time.Unix(0, 0), time.Date(1970, 12, 31, 23, 59, 59, 0, time.UTC),
		time.Unix(1<<60, 0)} {
		_, err := clients[0].OnceAt(t.Context(), "job", slot, got.job)
		is(t, err, dblock.ErrInvalidOption)
	}
	_, err := clients[0].OnceAt(t.Context(), "job", time.Now(), nil)
	is(t, err, dblock.ErrInvalidOption)
	_, err = clients[0].OnceAt(t.Context(), "", time.Now(), got.job)
	is(t, err, dblock.ErrInvalidName)
}

func onceAtInOrder(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	slots := e.times(t, 4)
	at(t, a, "job", slots[2], true)
	for _, early := range slots[:3] {
		at(t, b, "job", early, false)
		at(t, b, "job", early, false, jobs.RetryFailed(3, 0))
	}
	at(t, b, "another", slots[0], true)
	at(t, b, "job", slots[3], true)
	at(t, a, "job", slots[2], false)
	at(t, a, "job", slots[2].Add(time.Microsecond), false)
}

func onceAtAhead(t *testing.T, e *env) {
	c := e.client(t)
	job := func(context.Context, *dblock.Lock, time.Time) error { return nil }
	now := func() time.Time { return time.UnixMicro(e.now(t)) }
	for _, ahead := range []time.Duration{time.Minute + patience, time.Hour, 24 * 365 * 100 * time.Hour} {
		ran, err := c.OnceAt(t.Context(), "job", now().Add(ahead), job)
		is(t, err, dblock.ErrInvalidOption)
		if ran {
			t.Errorf("%v ahead: it ran", ahead)
		}
	}
	for _, err := range c.Runs(t.Context(), "job") {
		t.Errorf("something was claimed, %v", err)
	}
	e.free(t, "once/job")
	soonest := now()
	at(t, c, "job", soonest.Add(55*time.Second), true)
	at(t, c, "job", soonest, false) // it counts as run: a later one was
	at(t, c, "job", soonest.Add(50*time.Second), false)
}

func onceAtAgain(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	slots := e.times(t, 3)
	trouble := errors.New("trouble")
	for _, slot := range slots[:2] {
		ran, err := a.OnceAt(t.Context(), "job", slot, func(context.Context, *dblock.Lock, time.Time) error {
			return trouble
		})
		if !ran {
			t.Error("it did not run")
		}
		is(t, err, trouble)
	}
	at(t, b, "job", slots[0], false, jobs.RetryFailed(3, 0)) // a later one has run, though it failed
	at(t, b, "job", slots[1], false)
	at(t, b, "job", slots[1], true, jobs.RetryFailed(3, 0))
	at(t, a, "job", slots[1], false, jobs.RetryFailed(3, 0))
	for run, err := range a.Runs(t.Context(), "job") {
		want := map[int64]int{slots[0].UnixMicro(): 1, slots[1].UnixMicro(): 2}[run.Slot]
		if err != nil || run.Tries != want || (run.Err != "") != (want == 1) {
			t.Errorf("%+v, %v", run, err)
		}
	}
	at(t, a, "job", slots[2], true)
}

func onceAtAlone(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	slots := e.times(t, 3)
	ran, err := a.OnceAt(t.Context(), "job", slots[0], func(context.Context, *dblock.Lock, time.Time) error {
		at(t, b, "job", slots[0], false)
		at(t, b, "job", slots[1], false)
		if ran, err := b.OncePer(t.Context(), "job", longSlot, func(context.Context, *dblock.Lock, time.Time) error {
			return nil
		}); ran || err != nil {
			t.Errorf("OncePer beside it: %v, %v", ran, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	at(t, b, "job", slots[1], true) // it is not too late for it
	e.free(t, "once/job")
}

func onceAtAndPer(t *testing.T, e *env) {
	c := e.client(t)
	per := func(name string, interval time.Duration, want bool) {
		t.Helper()
		ran, err := c.OncePer(t.Context(), name, interval, func(context.Context, *dblock.Lock, time.Time) error {
			return nil
		})
		if ran != want || err != nil {
			t.Errorf("%s: OncePer(%v): %v, %v: want %v", name, interval, ran, err, want)
		}
	}
	day := e.slotWith(t, 20_000, 5) // the slot of now began half of it ago
	began := time.UnixMicro(20_000 * day.Microseconds())
	per("by interval", day, true)
	now := time.UnixMicro(e.now(t))
	at(t, c, "by interval", began, false) // the run began after that
	at(t, c, "by interval", began, false, jobs.RetryFailed(3, 0))
	at(t, c, "by interval", now.Add(30*time.Second), true)
	e.ranAt(t, "failed", day, 20_000, 4, true)
	at(t, c, "failed", began, false)
	at(t, c, "failed", began, true, jobs.RetryFailed(3, 0))
	e.ranAt(t, "before", day, 20_000, 1, false)
	at(t, c, "before", began.Add(day/4), true) // its run began before that

	at(t, c, "by the clock", now, true)
	per("by the clock", day, false) // it ran today
	e.exec(t, "UPDATE dblock_runs SET began_at = began_at - ?, slot = slot - ?, slot_ends = slot_ends - ? WHERE "+
		"name = 'by the clock'",
		day.Microseconds(), day.Microseconds(), day.Microseconds())
	per("by the clock", day, true) // that was yesterday
}

func onceAtPurged(t *testing.T, e *env) {
	c := e.client(t)
	slots := e.times(t, 3)
	for _, slot := range slots {
		at(t, c, "job", slot, true)
	}
	const old = 48 * time.Hour
	e.exec(t, "UPDATE dblock_runs SET began_at = began_at - ?, ended_at = ended_at - ?, slot = slot - ?, slot_ends "+
		"= slot_ends - ?",
		old.Microseconds(), old.Microseconds(), old.Microseconds(), old.Microseconds())
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).Backend, reaper.History(24*time.Hour))
	if err != nil || report.Deleted != 2 {
		t.Fatalf("%+v, %v: want two runs deleted", report, err)
	}
	for _, slot := range slots {
		at(t, c, "job", slot.Add(-old), false)
	}
	at(t, c, "job", slots[2], true)
}

func toldSlot(t *testing.T, e *env) {
	c := e.client(t)
	day := e.slotWith(t, 20_000, 5)
	var got noted
	for _, interval := range []time.Duration{day, longSlot} {
		before := e.now(t)
		if ran, err := c.OncePer(t.Context(), interval.String(), interval, got.job); !ran || err != nil {
			t.Fatal(ran, err)
		}
		told := got.slots[len(got.slots)-1].UnixMicro()
		if told%interval.Microseconds() != 0 || told > before || told+interval.Microseconds() <= before {
			t.Errorf("%v: told %d at %d", interval, told, before)
		}
	}
}
