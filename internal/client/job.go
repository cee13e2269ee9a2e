package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// Job runs f as the run of a slot of a job, unless the slot has been run, or is run, by another. f
// is told when its slot begins. The outcome is what f returned; failure is everything else that
// went wrong.
func (c *Client) Job(ctx context.Context, name string, lock *Want, slot driver.Slot, retry bool, f func(ctx context.Context, l *Lock, begins time.Time) error) (ran bool, outcome, failure error) {
	if err := c.begin(); err != nil { // Close ends the job's context, and waits for its outcome
		return false, nil, err
	}
	defer c.done()
	l, err := c.lockJob(ctx, name, lock)
	if l == nil || err != nil {
		return false, nil, err
	}
	defer func() { failure = driver.Join(failure, l.Unlock(ctx)) }()
	run := driver.Run{Name: name, Token: l.Token(), Session: l.hold.held().Session, Host: l.hold.owner.Host, Thread: l.hold.owner.Thread}
	began, ours, err := c.beginRun(ctx, run, slot, retry)
	if err != nil {
		if errors.Is(err, driver.ErrFuture) {
			return false, nil, fmt.Errorf("%w: %w", ErrInvalidOption, err)
		}
		c.disclaim(ctx, run, err)
		return false, nil, err
	}
	if !ours {
		return false, nil, nil
	}
	if err := l.confirm(ctx); err != nil { // it may have been lost before the slot was claimed, and another be running
		began.Failed, began.Detail = true, "the lock was lost before the job began"
		_ = c.endRun(ctx, began)
		return false, nil, err
	}
	begins := time.UnixMicro(began.SlotEnds.UnixMicro() - slot.Length.Microseconds())
	outcome, failure = c.run(ctx, l, began, func(ctx context.Context, l *Lock) error { return f(ctx, l, begins) })
	return true, outcome, failure
}

// lockJob takes the lock of a job; nil where a run of it goes on. A client that has the lock only
// to look whether the slot has been run is waited for: by then it may be the next slot.
func (c *Client) lockJob(ctx context.Context, name string, w *Want) (*Lock, error) {
	ctx = c.owners.without(ctx) // a job that asks for itself is another owner, and finds itself running
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
		pause(ctx, 10*time.Millisecond)
	}
}

// running reports whether the latest run of a job has this token, and has not ended.
func (c *Client) running(ctx context.Context, name string, token int64) (running bool, err error) {
	err = c.inquire(ctx, func(ctx context.Context) error {
		latest, err := c.engine.Runs(ctx, name, time.Time{}, 1)
		running = len(latest) > 0 && latest[0].Token == token && latest[0].Ended.IsZero()
		return err
	})
	return running, err
}

// confirm asks the database whether a lock is held.
func (l *Lock) confirm(ctx context.Context) error {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if err := context.Cause(l.hold.ctx); err != nil {
		return err
	}
	return l.client.rows(l.hold).confirm(ctx, l.hold)
}

// beginRun claims the slot. After a reply that was lost it looks first whether it has: by now it
// may be the next slot's turn.
func (c *Client) beginRun(ctx context.Context, r driver.Run, slot driver.Slot, retry bool) (run driver.Run, ours bool, err error) {
	again := false
	err = c.inquire(ctx, func(ctx context.Context) (err error) {
		if again {
			latest, err := c.engine.Runs(ctx, r.Name, time.Time{}, 1)
			if err != nil || len(latest) > 0 && latest[0].Token == r.Token {
				run, ours = append(latest, driver.Run{})[0], err == nil
				return err
			}
		}
		again = true
		run, ours, err = c.engine.BeginRun(ctx, r, slot, retry)
		return err
	})
	return run, ours, err
}

// disclaim ends a run that may have been claimed without its caller's knowing, so that a retry may
// try the slot again.
func (c *Client) disclaim(ctx context.Context, run driver.Run, why error) {
	if residueOf(why) != unsure {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.CleanupTimeout)
	defer cancel()
	var latest []driver.Run
	err := c.statement(within, func(ctx context.Context) (err error) {
		latest, err = c.engine.Runs(ctx, run.Name, time.Time{}, 1)
		return err
	})
	if err == nil && len(latest) > 0 && latest[0].Token == run.Token {
		latest[0].Failed, latest[0].Detail = true, "it was claimed, and the answer was lost"
		_ = c.endRun(within, latest[0])
	}
}

// run runs f and writes what came of it, also when it panics.
func (c *Client) run(ctx context.Context, l *Lock, run driver.Run, f func(ctx context.Context, l *Lock) error) (outcome, failure error) {
	run.Failed, run.Detail = true, "it panicked"
	defer func() {
		failure = c.endRun(ctx, run)
		if errors.Is(failure, driver.ErrNotHeld) { // another has taken the slot over, which a retry may do after a loss
			failure = lost(errors.New("another runs the slot"))
		}
	}()
	outcome = l.Run(ctx, func(inner context.Context) error {
		if _, ok := c.owners.in(ctx); ok { // what the caller holds, the job enters again
			inner = c.owners.as(inner, ctx)
		}
		return f(inner, l)
	})
	run.Failed, run.Detail = outcome != nil, ""
	if outcome != nil {
		run.Detail = Clean(outcome.Error())
	}
	return outcome, nil
}

// endRun writes an outcome, also when ctx has ended.
func (c *Client) endRun(ctx context.Context, run driver.Run) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.CleanupTimeout)
	defer cancel()
	for {
		err := c.statement(within, func(ctx context.Context) error { return c.engine.EndRun(ctx, run) })
		if !c.transient(err) || within.Err() != nil {
			return err
		}
		pause(within, 50*time.Millisecond)
	}
}
