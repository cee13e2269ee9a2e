package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/jobs"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/observe"
)

// Job is a run that is asked for.
type Job struct {
	Name  string
	Lock  *Want
	Slot  driver.Slot
	Retry driver.Retry
	Zone  *time.Location                                             // in which its slots are told; nil: the machine's own
	Run   func(ctx context.Context, l *Lock, begins time.Time) error // is told when its slot begins
}

// JobDone is what came of a Job.
type JobDone struct {
	Ran     bool
	Outcome error         // of Run
	Failure error         // everything else that went wrong
	Next    time.Duration // until the slot, or the next one, may be due; 0: not known
}

// Do runs a job, unless its slot has been run, or is run, by another.
func (c *Client) Do(ctx context.Context, j Job) (done JobDone) {
	if done.Failure = c.store.Begin(); done.Failure != nil { // Close ends the job's context, and waits for its outcome
		return done
	}
	defer c.store.Done()
	l, err := c.lockJob(ctx, j.Name, j.Lock)
	if l == nil || err != nil {
		return JobDone{Failure: err}
	}
	defer func() { done.Failure = driver.Join(done.Failure, l.Unlock(ctx)) }()
	run := driver.Run{Name: j.Name, Token: l.Token(), Session: l.hold.Held().Session, Host: l.hold.Owner.Host, Thread: l.hold.Owner.Thread}
	began, ours, err := c.beginRun(ctx, run, j.Slot, j.Retry)
	switch {
	case err != nil:
		c.disclaim(ctx, run, err)
		return JobDone{Failure: err}
	case ours:
	case j.Slot.Early(began.Seen):
		return JobDone{Failure: j.early(began.Seen)}
	default:
		return JobDone{Next: jobs.Next(began, j.Slot, j.Retry)}
	}
	if err := l.confirm(ctx); err != nil { // it may have been lost before the slot was claimed, and another be running
		began.Failed, began.Detail = true, "the lock was lost before the job began"
		_ = c.endRun(ctx, began)
		return JobDone{Failure: err}
	}
	c.tellLeftOut(ctx, began, j.Slot)
	begins := j.told(time.UnixMicro(began.SlotEnds.UnixMicro() - j.Slot.Length.Microseconds()))
	since := c.config.Clock.Now()
	outcome, failure := c.run(ctx, l, began, func(ctx context.Context, l *Lock) error { return j.Run(ctx, l, begins) })
	took := c.config.Clock.Now() - since
	if c.observer != nil && c.observer.RunEnd != nil {
		c.observer.RunEnd(observe.RunResult{Name: j.Name, Slot: begins, Took: took, Err: driver.Join(outcome, failure)})
	}
	began.Ended, began.Failed = began.Began.Add(took), outcome != nil
	began.Seen = began.Ended
	return JobDone{true, outcome, failure, jobs.Next(began, j.Slot, j.Retry)}
}

// told is a time as the caller of a job has it.
func (j Job) told(t time.Time) time.Time {
	if j.Zone == nil {
		return t
	}
	return t.In(j.Zone)
}

// early is the refusal of a slot that is too far ahead of the database's clock.
func (j Job) early(now time.Time) error {
	const form = "2006-01-02 15:04:05 -07:00 (MST)"
	slot := j.told(time.UnixMicro(j.Slot.Moment))
	return fmt.Errorf("%w: the slot %s is %v ahead of the database's clock, which shows %s, in the same zone %s: at most %v is allowed; this machine's clock, or the schedule's time zone, is wrong",
		ErrInvalidOption, slot.Format(form), slot.Sub(now).Round(time.Second), now.UTC().Format(form), j.told(now).Format(form), driver.MaxAhead)
}

// Every does a job in each of its slots until ctx ends: nil. It returns what to try again does not
// mend.
func (c *Client) Every(ctx context.Context, j Job) error {
	for {
		done := c.Do(ctx, j)
		switch err := driver.Join(done.Outcome, done.Failure); {
		case ctx.Err() != nil:
			return nil
		case hopeless(done.Failure):
			return done.Failure
		case err != nil:
			c.config.Log.Warn("dblock: a job failed", "name", j.Name, "error", err)
		}
		if done.Next == 0 {
			done.Next = min(max(j.Slot.Span(time.Now())/10, 100*time.Millisecond), 10*time.Second)
		}
		if !c.sleep(ctx, done.Next) {
			return nil
		}
	}
}

// hopeless reports whether an error stays however often a call is repeated.
func hopeless(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidOption) || errors.Is(err, driver.ErrConfig) ||
		errors.Is(err, driver.ErrSchema) || errors.Is(err, driver.ErrUnsupported)
}

// sleep waits by the client's clock, which goes on while the machine sleeps, or until the client is
// closed; false: ctx has ended.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	over := make(chan struct{})
	defer c.config.Clock.Alarm(c.config.Clock.Now()+d, func() { close(over) })()
	select {
	case <-over:
		return true
	case <-c.store.Background.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// tellLeftOut tells the observer of the slots between a run and the one before it. It is of no
// consequence for the job where that cannot be found out.
func (c *Client) tellLeftOut(ctx context.Context, run driver.Run, slot driver.Slot) {
	if c.observer == nil || c.observer.SlotsLeftOut == nil || slot.Length == 0 || run.Tries > 1 {
		return
	}
	_ = c.store.Call(ctx, func(ctx context.Context) error {
		before, err := c.store.Engine.Runs(ctx, driver.RunFilter{Name: run.Name, Before: run.Began}, 1)
		if err == nil && len(before) > 0 {
			if skipped, missed := jobs.LeftOut(before[0], run, slot.Length); skipped+missed > 0 {
				c.observer.SlotsLeftOut(observe.LeftOut{Name: run.Name, Skipped: skipped, Missed: missed})
			}
		}
		return err
	})
}

// lockJob takes the lock of a job; nil where a run of it goes on. A client that has the lock only
// to look whether the slot has been run is waited for: by then it may be the next slot.
func (c *Client) lockJob(ctx context.Context, name string, w *Want) (*Lock, error) {
	ctx = c.owners.Without(ctx) // a job that asks for itself is another owner, and finds itself running
	if !c.store.Begun() {       // Acquire would fail at once where the database is away
		err := c.store.Insist(ctx, func(ctx context.Context) error {
			_, err := c.sessions.Open(ctx, false)
			return err
		})
		if err != nil {
			return nil, c.store.Explain(ctx, err)
		}
	}
	for tries := 1; ; tries++ {
		l, err := c.Acquire(ctx, w, false)
		var refused refusal
		if !errors.As(err, &refused) {
			return l, err
		}
		if running, err := c.running(ctx, name, refused.state.Holder.Grant.Token); running || err != nil {
			return nil, err
		}
		if tries > 100 || ctx.Err() != nil { // many look, and one of them will run it
			return nil, ctx.Err()
		}
		store.Pause(ctx, 10*time.Millisecond)
	}
}

// running reports whether the latest run of a job has this token, and has not ended.
func (c *Client) running(ctx context.Context, name string, token int64) (running bool, err error) {
	err = c.store.Insist(ctx, func(ctx context.Context) error {
		latest, err := c.store.Engine.Runs(ctx, driver.RunFilter{Name: name}, 1)
		running = len(latest) > 0 && latest[0].Token == token && latest[0].Ended.IsZero()
		return err
	})
	return running, err
}

// confirm asks the database whether a lock is held.
func (l *Lock) confirm(ctx context.Context) error {
	l.hold.Entries.Lock()
	defer l.hold.Entries.Unlock()
	if err := context.Cause(l.hold.Context()); err != nil {
		return err
	}
	return l.client.confirm(ctx, l.hold)
}

// beginRun claims the slot. After a reply that was lost it looks first whether it has: by now it
// may be the next slot's turn.
func (c *Client) beginRun(ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry) (run driver.Run, ours bool, err error) {
	again := false
	err = c.store.Insist(ctx, func(ctx context.Context) (err error) {
		if again {
			latest, err := c.store.Engine.Runs(ctx, driver.RunFilter{Name: r.Name}, 1)
			if err != nil || len(latest) > 0 && latest[0].Token == r.Token {
				run, ours = append(latest, driver.Run{})[0], err == nil
				return err
			}
		}
		again = true
		run, ours, err = c.store.Engine.BeginRun(ctx, r, slot, retry)
		return err
	})
	return run, ours, err
}

// disclaim ends a run that may have been claimed without its caller's knowing, so that a retry may
// try the slot again.
func (c *Client) disclaim(ctx context.Context, run driver.Run, why error) {
	if store.ResidueOf(why) != store.Unsure {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.CleanupTimeout)
	defer cancel()
	var latest []driver.Run
	err := c.store.Call(within, func(ctx context.Context) (err error) {
		latest, err = c.store.Engine.Runs(ctx, driver.RunFilter{Name: run.Name}, 1)
		return err
	})
	if err == nil && len(latest) > 0 && latest[0].Token == run.Token {
		latest[0].Failed, latest[0].Detail = true, "it was claimed, and the answer was lost"
		_ = c.endRun(within, latest[0])
	}
}

// run runs f and writes what came of it, also when it panics.
func (c *Client) run(ctx context.Context, l *Lock, run driver.Run, f func(ctx context.Context, l *Lock) error) (outcome, failure error) {
	returned := false
	defer func() {
		var panicked any
		if !returned {
			panicked = recover()
			outcome = Panicked(panicked)
		}
		run.Failed, run.Detail = outcome != nil, ""
		if outcome != nil {
			run.Detail = cleaned(outcome.Error(), maxOutcome)
		}
		failure = c.endRun(ctx, run)
		if errors.Is(failure, driver.ErrNotHeld) { // another has taken the slot over, which a retry may do after a loss
			failure = lost(errors.New("another runs the slot"))
		}
		if panicked != nil {
			panic(panicked)
		}
	}()
	outcome = l.Run(ctx, func(inner context.Context) error {
		if _, ok := c.owners.In(ctx); ok { // what the caller holds, the job enters again
			inner = c.owners.As(inner, ctx)
		}
		return f(inner, l)
	})
	returned = true
	return outcome, nil
}

// Panicked is the outcome of a job that did not return: what it panicked with, and where. It is
// called by a deferred function, with what recover returned; nil: the job ended its goroutine.
func Panicked(value any) error {
	if value == nil {
		return errors.New("it ended its goroutine (runtime.Goexit)")
	}
	stack := string(debug.Stack())
	if _, below, ok := strings.Cut(stack, "\npanic("); ok { // above it are the deferred functions
		_, below, _ = strings.Cut(below, "\n\t") // the arguments, and the place in the runtime
		_, stack, _ = strings.Cut(below, "\n")
	}
	return fmt.Errorf("it panicked: %s\n%s", Clean(fmt.Sprint(value)), stack)
}

// endRun writes an outcome. It tries for as long as Lock does, and for CleanupTimeout where ctx has
// ended or once the client is being closed.
func (c *Client) endRun(ctx context.Context, run driver.Run) error {
	limit := contract.CleanupTimeout
	if ctx.Err() == nil && !c.store.Closing() {
		limit = max(limit, c.config.TTL)
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(c.store.Background, func() { time.AfterFunc(contract.CleanupTimeout, cancel) })()
	for {
		err := c.store.Call(within, func(ctx context.Context) error { return c.store.Engine.EndRun(ctx, run) })
		if !c.store.Transient(err) || within.Err() != nil {
			return err
		}
		store.Pause(within, 50*time.Millisecond)
	}
}
