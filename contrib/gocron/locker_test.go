package gocronlock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	gocronlock "github.com/dblock-go/dblock/contrib/gocron"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// lockers are all kinds, each with its error where another has the job.
var lockers = map[string]struct {
	taken error
	make  func(t *testing.T, file string) *gocronlock.Locker
}{
	"Every": {gocronlock.ErrTaken, func(t *testing.T, file string) *gocronlock.Locker {
		return made(t)(gocronlock.Every(client(t, file), time.Hour))
	}},
	"At": {gocronlock.ErrTaken, func(t *testing.T, file string) *gocronlock.Locker {
		return made(t)(gocronlock.At(client(t, file), hourly))
	}},
	"Hold": {dblock.ErrNotAcquired, func(t *testing.T, file string) *gocronlock.Locker {
		return made(t)(gocronlock.Hold(client(t, file).Locker(), time.Hour))
	}},
}

var hourly = func() cron.Schedule {
	s, err := cron.ParseStandard("0 * * * *")
	if err != nil {
		panic(err)
	}
	return s
}()

func made(t *testing.T) func(l *gocronlock.Locker, err error) *gocronlock.Locker {
	return func(l *gocronlock.Locker, err error) *gocronlock.Locker {
		require.NoError(t, err)
		return l
	}
}

func TestAJobOfAMomentRunsOnceOnFourReplicas(t *testing.T) {
	for kind, k := range lockers {
		t.Run(kind, func(t *testing.T) {
			file := file(t)
			ran, refused := make(chan struct{}, 4), make(chan error, 4)
			for i := range 4 {
				s := scheduler(t, gocron.WithDistributedLocker(k.make(t, file)))
				now(t, s, func() { ran <- struct{}{} },
					gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }))
				// one after the other: all find the job ended
				until(t, func() bool { return len(ran)+len(refused) > i })
			}
			for range 3 {
				assert.ErrorIs(t, receive(t, refused), k.taken)
			}
			if len(ran) != 1 {
				t.Errorf("it ran %d times", len(ran))
			}
		})
	}
}

// No replica was there on the first of January.
func TestATimeThatWasMissedIsCaughtUpOnce(t *testing.T) {
	const yearly = "0 0 1 1 *"
	schedule, err := cron.ParseStandard(yearly)
	require.NoError(t, err)
	file := file(t)
	ran, refused := make(chan struct{}, 3), make(chan error, 3)
	for i := range 3 {
		s := scheduler(t, gocron.WithDistributedLocker(made(t)(gocronlock.At(client(t, file), schedule))))
		_, err := s.NewJob(gocron.CronJob(yearly, false), gocron.NewTask(func() { ran <- struct{}{} }),
			gocron.WithName(job),
			gocron.WithStartAt(gocron.WithStartImmediately()),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
		require.NoError(t, err)
		s.Start()
		until(t, func() bool { return len(ran)+len(refused) > i })
	}
	for range 2 {
		assert.ErrorIs(t, receive(t, refused), gocronlock.ErrTaken)
	}
	if len(ran) != 1 {
		t.Errorf("it ran %d times", len(ran))
	}
}

func TestATaskIsToldThatItsLockIsLost(t *testing.T) {
	for kind, k := range lockers {
		t.Run(kind, func(t *testing.T) {
			file := file(t)
			locker := k.make(t, file)
			tokens, causes, failed := make(chan int64, 1), make(chan error, 1), make(chan error, 1)
			s := scheduler(t, gocron.WithDistributedLocker(locker))
			now(t, s, locker.Task(job, func(ctx context.Context, l dblock.Handle) error {
				tokens <- l.Token()
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}), gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }))
			if token := receive(t, tokens); token <= 0 {
				t.Errorf("token %d", token)
			}
			breakAll(t, client(t, file))
			assert.ErrorIs(t, receive(t, causes), dblock.ErrLost, "the cause is")
			assert.ErrorIs(t, receive(t, failed), context.Canceled, "gocron heard")
		})
	}
}

// breakAll takes all locks from their holders.
func breakAll(t *testing.T, c *dblock.Client[*sql.Tx]) {
	for info, err := range inspect.New(c).List(t.Context(), inspect.Filter{}) {
		require.NoError(t, err)
		require.NoError(t, require.ErrOf(c.Break(t.Context(), info.Name, "test")))
	}
}

func TestATaskEndsWithItsScheduler(t *testing.T) {
	for kind, k := range lockers {
		t.Run(kind, func(t *testing.T) {
			locker := k.make(t, file(t))
			began, ended := make(chan struct{}), make(chan error, 1)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			require.NoError(t, err)
			now(t, s, locker.Task(job, func(ctx context.Context, l dblock.Handle) error {
				close(began)
				<-ctx.Done()
				ended <- l.Context().Err() // the lock is kept until the job has returned
				return nil
			}))
			receive(t, began)
			assert.NoError(t, s.Shutdown())
			assert.NoError(t, receive(t, ended), "its lock had ended")
		})
	}
}

func TestTheOutcomeOfATaskIsKept(t *testing.T) {
	file := file(t)
	c := client(t, file)
	locker := made(t)(gocronlock.Every(c, time.Hour, jobs.RetryFailed(3, 0)))
	run := func(f func() error) error {
		t.Helper()
		l, err := locker.Lock(t.Context(), job)
		require.NoError(t, err)
		func() {
			defer func() { _ = recover() }()
			_ = locker.Task(job, func(context.Context, dblock.Handle) error { return f() })(t.Context())
		}()
		return l.Unlock(t.Context())
	}
	broken := errors.New("out of paper")
	for want, f := range map[string]func() error{
		"out of paper":      func() error { return broken },
		"it panicked: boom": func() error { panic("boom") },
	} {
		if err := run(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Unlock said %v, not %q", err, want)
		}
		if kept := outcomes(t, c); len(kept) != 1 || !strings.HasPrefix(kept[0], want) ||
			strings.Contains(want, "boom") && !strings.Contains(kept[0], "locker_test.go") {
			t.Errorf("kept: %q, not %q", kept, want)
		}
	}
	if err := run(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if kept := outcomes(t, c); !slices.Equal(kept, []string{""}) {
		t.Errorf("kept: %q", kept)
	}
	assert.ErrorIs(t, assert.ErrOf(locker.Lock(t.Context(), job)), gocronlock.ErrTaken, "after a success")
}

func outcomes(t *testing.T, c *dblock.Client[*sql.Tx]) (kept []string) {
	t.Helper()
	for r, err := range jobs.New(c).Runs(t.Context(), job) {
		require.NoError(t, err)
		kept = append(kept, r.Err)
	}
	return kept
}

func TestATaskWithoutItsLockIsNotRun(t *testing.T) {
	locker := lockers["Every"].make(t, file(t))
	s := scheduler(t, gocron.WithDistributedLocker(locker))
	failed := make(chan error, 1)
	now(t, s, locker.Task("another name", func(context.Context, dblock.Handle) error {
		t.Error("it ran")
		return nil
	}), gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }))
	assert.ErrorIs(t, receive(t, failed), dblock.ErrNotHeld)
}

func TestTheEndOfALostRunLeavesTheNextOne(t *testing.T) {
	file := file(t)
	locker := lockers["Hold"].make(t, file)
	first, err := locker.Lock(t.Context(), job)
	require.NoError(t, err)
	if n, err := client(t, file).Break(t.Context(), job, "test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	second, err := locker.Lock(t.Context(), job)
	require.NoError(t, err)
	assert.ErrorIs(t, first.Unlock(t.Context()), dblock.ErrLost)
	err = locker.Task(job, func(ctx context.Context, l dblock.Handle) error {
		return context.Cause(l.Context())
	})(t.Context())
	assert.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		assert.NoError(t, second.Unlock(over))
	}
}

// Under a lock's context an owner enters what it has: here, both would run the job.
func TestTwoSchedulersUnderOneLockAreTwo(t *testing.T) {
	file := file(t)
	c := client(t, file)
	locker := made(t)(gocronlock.Hold(c.Locker(), time.Hour))
	outer, err := c.Lock(t.Context(), "outer")
	require.NoError(t, err)
	defer outer.Unlock(t.Context())
	first, err := locker.Lock(outer.Context(), job)
	require.NoError(t, err)
	defer first.Unlock(t.Context())
	assert.ErrorIs(t, assert.ErrOf(locker.Lock(outer.Context(), job)), dblock.ErrNotAcquired, "the second got")
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

func TestBadInputIsRefused(t *testing.T) {
	c := client(t, file(t))
	for what, try := range map[string]func() error{
		"Every without a client":   func() error { _, err := gocronlock.Every[any](nil, time.Hour); return err },
		"a slot that is too short": func() error { _, err := gocronlock.Every(c, 99*time.Millisecond); return err },
		"a zero Option": func() error {
			_, err := made(t)(gocronlock.Every(c, time.Hour, jobs.Option{})).Lock(t.Context(), job)
			return err
		},
		"At without a client":   func() error { _, err := gocronlock.At[any](nil, hourly); return err },
		"At without a schedule": func() error { _, err := gocronlock.At(c, nil); return err },
		"a schedule without times": func() error {
			_, err := made(t)(gocronlock.At(c, never{})).Lock(t.Context(), job)
			return err
		},
		"Hold without a client": func() error { _, err := gocronlock.Hold(nil, time.Hour); return err },
		"a hold of no time":     func() error { _, err := gocronlock.Hold(c.Locker(), 0); return err },
		"a hold of more than a year": func() error {
			_, err := gocronlock.Hold(c.Locker(), 367*24*time.Hour)
			return err
		},
		"NewElector without a client": func() error { _, err := gocronlock.NewElector[any](nil, job); return err },
		"a task without its function": func() error { return lockers["Hold"].make(t, "").Task(job, nil)(t.Context()) },
		"a leader's task without one": func() error { return elector(t, c).Task(nil)(t.Context()) },
	} {
		assert.ErrorIs(t, try(), dblock.ErrInvalidOption, what)
	}
	assert.ErrorIs(t, assert.ErrOf(gocronlock.NewElector(c, "")), dblock.ErrInvalidName)
}
