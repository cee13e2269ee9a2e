package suite

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// schedules are about jobs and TryLock whose database is away for a moment, and about EveryAt.
var schedules = inPlaces(own{
	{"a moment's outage costs no job its slot, and no TryLock its answer", momentsOutage},
	{"a job's panic keeps what it panicked with, and where", panicKept},
}, moving{
	{"TryLock, OncePer and OnceAt give up after a TTL without an answer, or when their context ends", jobsGiveUp},
	{"EveryAt runs each time of a schedule once over all clients, by the database's clock", everyAt},
	{"EveryAt runs the latest time that nobody ran, after an outage", everyAtAfterOutage},
	{"EveryAt whose schedule has changed runs the latest time of the new one, if it is later than the last run",
		everyAtChanged},
})

// failing is a server that answers one kind of statement with an error, some times.
type failing struct {
	kind  string
	after bool // the statement has done its work
	left  atomic.Int64
}

func (f *failing) hook(ctx context.Context, c *fakedb.Call) error {
	_, takes := c.Op().(protocol.Take)
	kind := map[string]string{
		"OpenSession": "opening a session", "Read": "looking", "BeginRun": "claiming", "EndRun": "writing the outcome",
	}[c.Method]
	if (kind != f.kind && !(takes && f.kind == "taking")) || f.left.Add(-1) < 0 {
		return c.Do(ctx)
	}
	if f.after {
		if err := c.Do(ctx); err != nil {
			return err
		}
	}
	return driver.Fail(driver.ErrUnavailable, driver.Fail(driver.ErrInDoubt, errors.New("a test says so")))
}

// Broken by giving up after a few tries, or at once in a client that never had a session, and by a
// slot that counts as failed since it was not known whether the lock was still held.
func momentsOutage(t *testing.T, e *env) {
	const fails = 6
	for _, c := range []struct {
		kind  string
		after bool
	}{{"opening a session", false}, {"taking", false}, {"taking", true}, {"claiming", false}, {"claiming", true},
		{"looking", false}, {"writing the outcome", false}, {"writing the outcome", true}} {
		a := e.app(t, 5)
		server := &failing{kind: c.kind, after: c.after}
		a.hook(server.hook)
		for _, by := range []string{"OnceAt", "OncePer"} {
			name, ran := c.kind+by, 0
			if c.after {
				name += " after it was done"
			}
			job := func(context.Context, *dblock.Lock, time.Time) error { ran++; return nil }
			client := e.clientOf(t, a)
			server.left.Store(fails)
			var mine bool
			var err error
			if by == "OnceAt" {
				mine, err = client.OnceAt(t.Context(), name, e.times(t, 1)[0], job)
			} else {
				mine, err = client.OncePer(t.Context(), name, longSlot, job)
			}
			if !mine || err != nil || ran != 1 || server.left.Load() == fails {
				t.Errorf("%s: ran %v, %d times, %v, failures left %d", name, mine, ran, err, server.left.Load())
			}
			for run, err := range client.Runs(t.Context(), name) {
				if err != nil || run.Err != "" || run.Ended.IsZero() || run.Tries != 1 {
					t.Errorf("%s: %+v, %v", name, run, err)
				}
			}
		}
	}
	a := e.app(t, 5)
	server := &failing{kind: "taking"}
	a.hook(server.hook)
	c := e.clientOf(t, a)
	unlock(t, lock(t, c, "to have a session"))
	server.left.Store(fails)
	try(t, c, "n")
	server.left.Store(fails)
	all, err := c.TryLockAll(t.Context(), []string{"a", "b", "c"})
	require.NoError(t, err)
	is(t, all.Unlock(t.Context()), nil)
}

// Broken by an end that is counted anew with each try.
func jobsGiveUp(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	c := e.clientOf(t, a)
	unlock(t, lock(t, c, "to have a session"))
	held := lock(t, e.client(t), "held")
	refused(t, c, "held")
	slot := e.times(t, 1)[0]
	calls := map[string]func(ctx context.Context, c Client) error{
		"TryLock": func(ctx context.Context, c Client) error { _, err := c.TryLock(ctx, "n"); return err },
		"OncePer": func(ctx context.Context, c Client) error {
			_, err := c.OncePer(ctx, "per", longSlot, nothing)
			return err
		},
		"OnceAt": func(ctx context.Context, c Client) error {
			_, err := c.OnceAt(ctx, "at", slot, nothing)
			return err
		},
	}
	server.set(driver.ErrUnavailable)
	begin := func(ctx context.Context) map[string]chan error {
		all := map[string]chan error{}
		for says, call := range calls {
			done := async(func() error { return call(ctx, c) })
			all[says] = done
		}
		server.hits(t, 20)
		for _, done := range all {
			stillWaits(t, 0, done)
		}
		return all
	}
	ctx, cancel := context.WithCancel(t.Context())
	all := begin(ctx)
	cancel()
	for says, done := range all {
		is(t, within(t, soon, says+" returns when its context ends", done), context.Canceled)
	}
	all = begin(t.Context())
	e.advance(t, longTTL+time.Second)
	for says, done := range all {
		is(t, within(t, soon, says+" returns after a TTL", done), dblock.ErrUnavailable)
	}
	fresh := e.clientOf(t, a) // it may have the wrong address
	is(t, assert.ErrOf(fresh.TryLock(t.Context(), "n")), dblock.ErrUnavailable)
	server.set(nil)
	_ = held.Unlock(t.Context())
}

func panicKept(t *testing.T, e *env) {
	c := e.client(t)
	for name, value := range map[string]any{
		"a text": "the disk is full", "an error": errors.New("the disk is full"),
		"no text at all": "the disk is full\xff\x00" + strings.Repeat("é", 9000),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = c.OncePer(t.Context(), name, longSlot, func(context.Context, *dblock.Lock, time.Time) error {
				panicsHere(value)
				return nil
			})
		}()
		for run, err := range c.Runs(t.Context(), name) {
			if err != nil || run.Ended.IsZero() || !strings.HasPrefix(run.Err, "it panicked: the disk is full") {
				t.Errorf("%s: %+v, %v", name, run, err)
			}
			if name := "panicsHere"; !strings.Contains(run.Err, name) || len(run.Err) > 4096 ||
				strings.Contains(run.Err, "runtime.gopanic") {
				t.Errorf("%d bytes, want a stack that begins at %s: %s", len(run.Err), name, run.Err)
			}
		}
		e.free(t, "once/"+name)
	}
}

//go:noinline
func panicsHere(value any) { panic(value) }

// minutely is a schedule of each full minute.
type minutely struct{}

func (minutely) Next(after time.Time) time.Time {
	return after.Truncate(time.Minute).Add(time.Minute)
}

// halfPast moves the clocks to the middle of a minute, which it returns.
func (e *env) halfPast(t testing.TB) (minute time.Time) {
	t.Helper()
	now := time.UnixMicro(e.now(t))
	minute = now.UTC().Truncate(time.Minute).Add(time.Minute)
	e.advance(t, minute.Sub(now)+30*time.Second)
	return minute
}

// everyAt begins EveryAt of each minute in each client, and returns its slots, and what ends it.
func (e *env) everyAt(t *testing.T, clients ...Client) (slots chan time.Time, stop func()) {
	t.Helper()
	return e.everyTime(t, minutely{}, clients...)
}

// everyTime is everyAt of any times.
func (e *env) everyTime(
	t *testing.T, times interface{ Next(time.Time) time.Time }, clients ...Client,
) (slots chan time.Time, stop func()) {
	t.Helper()
	schedule, err := jobs.NewSchedule(time.UTC, times)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	slots = make(chan time.Time, 99)
	ended := make(chan error, len(clients))
	for _, c := range clients {
		go func() {
			ended <- c.EveryAt(ctx, "job", schedule, func(_ context.Context, _ *dblock.Lock, slot time.Time) error {
				slots <- slot
				return nil
			})
		}()
	}
	return slots, func() {
		t.Helper()
		cancel()
		for range clients {
			is(t, within(t, soon, "EveryAt ends with its context", ended), nil)
		}
	}
}

// Broken by slots of the machine's clock.
func everyAt(t *testing.T, e *env) {
	e.advance(t, 90*time.Second) // so that the machine's clock is another
	due := e.halfPast(t)
	slots, stop := e.everyAt(t, e.client(t), e.client(t))
	for range 3 {
		if slot := within(t, soon, "a run", slots); !slot.Equal(due) || slot.Location() != time.UTC {
			t.Errorf("it ran %v, want %v", slot, due)
		}
		due = e.halfPast(t)
	}
	if slot := within(t, soon, "a run", slots); !slot.Equal(due) {
		t.Errorf("it ran %v, want %v", slot, due)
	}
	stop()
	is(t, e.client(t).EveryAt(t.Context(), "job", nil, nothing), dblock.ErrInvalidOption)
}

// past is a schedule of each minute, so many seconds after it began.
type past int

func (p past) Next(after time.Time) time.Time {
	late := time.Duration(p) * time.Second
	return after.Add(-late).Truncate(time.Minute).Add(time.Minute + late)
}

// Broken by a new schedule that begins with its next time, and by one that runs a time from before
// the last run.
func everyAtChanged(t *testing.T, e *env) {
	c := e.client(t)
	minute := e.halfPast(t)
	began := func(times past, want time.Time) {
		t.Helper()
		slots, stop := e.everyTime(t, times, c)
		if slot := within(t, soon, "the latest time", slots); !slot.Equal(want) {
			t.Errorf("%d seconds past: it ran %v, want %v", times, slot, want)
		}
		stop()
	}
	began(10, minute.Add(10*time.Second))
	began(20, minute.Add(20*time.Second))              // in the past too, and later than the last run
	at(t, c, "job", minute.Add(15*time.Second), false) // the latest time of a third one, from before the last run
}

// Broken by a loop that waits for the next time after a failure.
func everyAtAfterOutage(t *testing.T, e *env) {
	a := e.app(t, 5)
	server := a.troubled()
	due := e.halfPast(t)
	slots, stop := e.everyAt(t, e.clientOf(t, a))
	if slot := within(t, soon, "the first run", slots); !slot.Equal(due) {
		t.Errorf("it ran %v, want %v", slot, due)
	}
	server.set(driver.ErrUnavailable)
	for range 3 {
		due = e.halfPast(t)
		server.hits(t, 1)
	}
	server.set(nil)
	e.advanceUntil(t, 20*time.Second, "a run after the outage", func() bool { return len(slots) > 0 })
	if slot := <-slots; !slot.Equal(due) {
		t.Errorf("it ran %v, want the latest, %v", slot, due)
	}
	stop()
	if len(slots) > 0 {
		t.Errorf("it ran %v as well", <-slots)
	}
}
