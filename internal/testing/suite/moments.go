package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/reaper"
)

var moments = inPlaces(own{
	{"OnceAt runs a slot once, over all clients, and tells the job its slot", onceAt},
	{"OnceAt refuses a slot that is more than a minute ahead of the database's clock, with both times in its zone",
		onceAtAhead},
	{"a job passes from OncePer to OnceAt and back", onceAtAndPer},
	{"a sweep deletes history that is too old, and not the latest slot of OnceAt", onceAtPurged},
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
	if ran, err := c.OnceAt(t.Context(), name, slot, nothing, options...); ran != want || err != nil {
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
		assert.Equal(t, got.slots[i], slot.Truncate(time.Microsecond), "told")
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
		is(t, assert.ErrOf(clients[0].OnceAt(t.Context(), "job", slot, got.job)), dblock.ErrInvalidOption)
	}
	is(t, assert.ErrOf(clients[0].OnceAt(t.Context(), "job", time.Now(), nil)), dblock.ErrInvalidOption)
	is(t, assert.ErrOf(clients[0].OnceAt(t.Context(), "", time.Now(), got.job)), dblock.ErrInvalidName)
}

func onceAtAhead(t *testing.T, e *env) {
	c := e.client(t)
	now := func() time.Time { return time.UnixMicro(e.now(t)) }
	zone, hour := time.FixedZone("THERE", 5*3600), "2006-01-02 15:"
	for _, ahead := range []time.Duration{time.Minute + patience, time.Hour, 24 * 365 * 100 * time.Hour} {
		now := now()
		slot := now.Add(ahead).In(zone)
		ran, err := c.OnceAt(t.Context(), "job", slot, nothing)
		if ran || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, driver.ErrInDoubt) {
			t.Errorf("%v ahead: ran %v, %v", ahead, ran, err)
		}
		says(t, err, dblock.ErrInvalidOption, slot.Format("2006-01-02 15:04:05")+" +05:00 (THERE)",
			"the database's clock", now.UTC().Format(hour), "+00:00 (UTC)", now.In(zone).Format(hour))
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

func onceAtAndPer(t *testing.T, e *env) {
	c := e.client(t)
	day := e.slotWith(t, 20_000, 5) // the slot of now began half of it ago
	began := time.UnixMicro(20_000 * day.Microseconds())
	per(t, c, "by interval", day, true)
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
	per(t, c, "by the clock", day, false) // it ran today
	e.exec(t, "UPDATE dblock_runs SET began_at = began_at - ?, slot = slot - ?, slot_ends = slot_ends - ? WHERE "+
		"name = 'by the clock'",
		day.Microseconds(), day.Microseconds(), day.Microseconds())
	per(t, c, "by the clock", day, true) // that was yesterday
}

func onceAtPurged(t *testing.T, e *env) {
	c := e.client(t)
	slots := e.times(t, 3)
	for _, slot := range slots {
		at(t, c, "job", slot, true)
	}
	l := lock(t, c, "n")
	const old = 48 * time.Hour
	e.exec(t, "UPDATE dblock_runs SET began_at = began_at - ?, ended_at = ended_at - ?, slot = slot - ?, slot_ends "+
		"= slot_ends - ?",
		old.Microseconds(), old.Microseconds(), old.Microseconds(), old.Microseconds())
	is(t, l.Record(t.Context(), "note", "old"), nil)
	unlock(t, l)
	e.exec(t, "UPDATE dblock_events SET at = at - ?", old.Microseconds())
	is(t, lock(t, c, "n").Record(t.Context(), "note", "young"), nil)
	report, err := reaper.Sweep(brief(t), e.app(t, 2).engine(), reaper.History(24*time.Hour), reaper.Batch(1))
	if err != nil || report.Deleted != 3 {
		t.Fatalf("%+v, %v: want two runs and an event deleted", report, err)
	}
	e.told(t, c, "n", "note", 1)
	for _, slot := range slots {
		at(t, c, "job", slot.Add(-old), false)
	}
	at(t, c, "job", slots[2], true)
}
