package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/observe"
)

// endPause is the pause before another try to write an outcome.
const endPause = 50 * time.Millisecond

// result is the result of one call for a job.
type result struct {
	ran     bool
	outcome error         // of fn
	failure error         // every other error
	next    time.Duration // until the slot, or the next one, may be due; 0: not known
}

// once runs the job, unless its slot has a run already, or another call is running it.
func (j *job) once(ctx context.Context) (res result) {
	if err := j.Store().Begin(); err != nil { // Close ends the job's context, and waits for its outcome
		return result{failure: err}
	}
	defer j.Store().Done()
	l, err := j.acquire(ctx)
	if l == nil || err != nil {
		return result{failure: err}
	}
	defer func() { res.failure = driver.Join(res.failure, l.Unlock(ctx)) }()
	run := driver.Run{Name: j.name, Token: l.Token()}
	run.Session, run.Host, run.Thread = l.Holder()
	began, ours, err := j.claim(ctx, run)
	switch {
	case err != nil:
		j.disclaim(ctx, run, err)
		return result{failure: err}
	case ours:
	case j.slot.Early(began.Seen):
		return result{failure: j.early(began.Seen)}
	default:
		return result{next: slots.Next(began, j.slot, j.retry)}
	}
	// The lock may have been lost before the slot was claimed: then another call may be running.
	if err := l.Confirm(ctx); err != nil {
		began.Failed, began.Detail = true, "the lock was lost before the job began"
		_ = j.end(ctx, began)
		return result{failure: err}
	}
	j.tellLeftOut(ctx, began)
	begins := j.in(time.UnixMicro(began.SlotEnds.UnixMicro() - j.slot.Length.Microseconds()))
	since := j.Clock().Now()
	outcome, failure := j.run(ctx, l, began, begins)
	took := j.Clock().Now() - since
	if o := j.Observer(); o.RunEnd != nil {
		o.RunEnd(observe.RunResult{Name: j.name, Slot: begins, Took: took, Err: driver.Join(outcome, failure)})
	}
	began.Ended, began.Failed = began.Began.Add(took), outcome != nil
	began.Seen = began.Ended
	return result{true, outcome, failure, slots.Next(began, j.slot, j.retry)}
}

// early returns the error of a slot that is too far ahead of the database's clock.
func (j *job) early(now time.Time) error {
	const form = "2006-01-02 15:04:05 -07:00 (MST)"
	slot := j.in(time.UnixMicro(j.slot.Moment))
	return fmt.Errorf("%w: the slot %s is %v ahead of the database's clock, which shows %s, in the same zone %s: "+
		"at most %v is allowed; this machine's clock, or the schedule's time zone, is wrong",
		dblock.ErrInvalidOption, slot.Format(form), slot.Sub(now).Round(time.Second), now.UTC().Format(form),
		j.in(now).Format(form), driver.MaxAhead)
}

// tellLeftOut notifies the observer of the slots without a run since the run before this one. The
// job does not depend on its errors.
func (j *job) tellLeftOut(ctx context.Context, run driver.Run) {
	tell := j.Observer().SlotsLeftOut
	if tell == nil || j.slot.Length == 0 || run.Tries > 1 {
		return
	}
	_ = j.Store().Call(ctx, func(ctx context.Context) error {
		before, err := j.Store().Engine.Runs(ctx, driver.RunFilter{Name: run.Name, Before: run.Began}, 1)
		if err == nil && len(before) > 0 {
			if skipped, missed := slots.LeftOut(before[0], run, j.slot.Length); skipped+missed > 0 {
				tell(observe.LeftOut{Name: run.Name, Skipped: skipped, Missed: missed})
			}
		}
		return err
	})
}

// acquire takes the lock of the job. It returns nil if a run of the job goes on. It waits for a
// call that has the lock only to read whether the slot has a run: the next slot may have begun.
func (j *job) acquire(ctx context.Context) (*client.Lock, error) {
	ctx = j.Owners().Without(ctx) // a job that calls itself is another owner, and finds itself running
	if err := j.Connect(ctx); err != nil {
		return nil, err
	}
	// Of all calls that ask for a slot, one runs it: only that is an event (run).
	want := client.Want{Request: protocol.Request{Name: j.lock()}, Unrecorded: true}
	for tries := 1; ; tries++ {
		l, err := j.Acquire(ctx, &want, false)
		var refused *dblock.NotAcquiredError
		if !errors.As(err, &refused) {
			return l, err
		}
		if running, err := j.running(ctx, refused.Token); running || err != nil {
			return nil, err
		}
		if tries > 100 || ctx.Err() != nil { // of many calls that wait, one runs the slot
			return nil, ctx.Err()
		}
		store.Pause(ctx, 10*time.Millisecond)
	}
}

// running reports whether the latest run of the job has this token, and has not ended.
func (j *job) running(ctx context.Context, token int64) (running bool, err error) {
	err = j.Store().Insist(ctx, func(ctx context.Context) error {
		latest, err := j.latest(ctx)
		running = latest.Token == token && latest.Token != 0 && latest.Ended.IsZero()
		return err
	})
	return running, err
}

// latest reads the latest run of the job; without one it returns the zero Run.
func (j *job) latest(ctx context.Context) (driver.Run, error) {
	runs, err := j.Store().Engine.Runs(ctx, driver.RunFilter{Name: j.name}, 1)
	if err != nil || len(runs) == 0 {
		return driver.Run{}, err
	}
	return runs[0], nil
}

// claim claims the slot, and reports whether this call is to run it.
func (j *job) claim(ctx context.Context, r driver.Run) (run driver.Run, ours bool, err error) {
	again := false
	err = j.Store().Insist(ctx, func(ctx context.Context) (err error) {
		// The answer to the first try may have been lost. By now another slot may be due, so that a
		// second claim could run two.
		if again {
			if run, err = j.latest(ctx); err != nil || run.Token == r.Token {
				ours = err == nil
				return err
			}
		}
		again = true
		run, ours, err = j.Store().Engine.BeginRun(ctx, r, j.slot, j.retry)
		return err
	})
	return run, ours, err
}

// disclaim ends a run if it is unknown whether the run was claimed, so that RetryFailed may run the
// slot again.
func (j *job) disclaim(ctx context.Context, run driver.Run, why error) {
	if store.ResidueOf(why) != store.Unsure {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.CleanupTimeout)
	defer cancel()
	var latest driver.Run
	err := j.Store().Call(within, func(ctx context.Context) (err error) {
		latest, err = j.latest(ctx)
		return err
	})
	if err == nil && latest.Token == run.Token {
		latest.Failed, latest.Detail = true, "it was claimed, and the answer was lost"
		_ = j.end(within, latest)
	}
}

// run calls fn and writes its outcome, also if fn panics.
func (j *job) run(ctx context.Context, l *client.Lock, run driver.Run, slot time.Time) (outcome, failure error) {
	returned := false
	defer func() {
		var panicked any
		if !returned {
			panicked = recover()
			outcome = outcomeOf(panicked)
		}
		run.Failed, run.Detail = outcome != nil, ""
		if outcome != nil {
			run.Detail = client.Clean(outcome.Error(), maxOutcome)
		}
		failure = j.end(ctx, run)
		if errors.Is(failure, driver.ErrNotHeld) { // after a loss, RetryFailed may let another call run the slot
			failure = contract.Lost(errors.New("another runs the slot"))
		}
		l.Note(history.Ran, ran(slot, driver.Join(outcome, failure)))
		if panicked != nil {
			panic(panicked)
		}
	}()
	outcome = l.Do(ctx, func(inner context.Context) error {
		if _, ok := j.Owners().In(ctx); ok { // under its caller's context, the job enters the caller's locks
			inner = j.Owners().As(inner, ctx)
		}
		return j.fn(inner, inside.Make[dblock.Lock](l), slot)
	})
	returned = true
	return outcome, nil
}

// ran returns the detail of the event of a run.
func ran(slot time.Time, outcome error) string {
	text := "slot " + slot.UTC().Format(time.RFC3339Nano)
	if outcome != nil {
		text += ", failed: " + outcome.Error()
	}
	return text
}

// end writes the outcome of a run. It retries for a TTL, or for CleanupTimeout if ctx has ended or
// the client is being closed.
func (j *job) end(ctx context.Context, run driver.Run) error {
	limit := contract.CleanupTimeout
	if ctx.Err() == nil && !j.Store().Closing() {
		limit = max(limit, j.TTL())
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(j.Store().Background, func() { time.AfterFunc(contract.CleanupTimeout, cancel) })()
	return j.Store().Retry(within, store.Policy{First: endPause, Longest: endPause}, func() error {
		return j.Store().Call(within, func(ctx context.Context) error { return j.Store().Engine.EndRun(ctx, run) })
	})
}
