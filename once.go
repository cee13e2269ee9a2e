package dblock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// minInterval is the shortest slot of OncePer.
const minInterval = 100 * time.Millisecond

// Run is one run of a job in its slot.
type Run struct {
	Name     string
	Slot     int64     // the database's time divided by the interval, rounded down; another interval has other slots
	SlotEnds time.Time // by the database's clock
	Token    int64     // of the lock under which it ran
	Host     string    // of the process that ran it
	Thread   string
	Began    time.Time // by the database's clock
	Ended    time.Time // the zero time: it runs still, or its process died
	Err      string    // why it failed; "": it did not, or has not ended
	Tries    int       // how often it was begun
}

// RunOption configures OncePer.
type RunOption func(*runConfig)

type runConfig struct{ retry bool }

// RetryFailed lets a slot be run again whose run has failed, or whose process died. Default: a slot
// is run once, come what may.
func RetryFailed() RunOption { return func(c *runConfig) { c.retry = true } }

// OncePer runs fn if nobody has done so in this slot, over all processes: a slot is as long as
// interval, on the database's clock, and begins where that, in microseconds since 1970, is a
// multiple of it. Call it from every process as often as you like (a ticker, cron): ran tells
// whether it was this call. At most one call runs a slot, however short fn is and however far the
// processes' clocks are apart. Runs of a name do not overlap either: while one goes on, in whatever
// slot, others are not begun. The first slot after that is run when somebody calls next; those that
// have gone by are not made up for.
//
// When the interval changes, with a deployment say, the slots change with it. A slot of the new
// interval counts as run if it was run, or if a run under another interval began in it; otherwise
// the next call runs it. So no slot is run twice, and none is left out in which nothing ran: a
// shorter interval holds from its next slot on, a longer one from the end of the slot that has the
// last run, and to change it back and forth runs nothing more. While two intervals are in use at
// once, each has its slots: the job may run more often than either says.
//
// fn runs under a lock of the name, "once/" before it: its context ends, with cause ErrLost, when
// that is lost. What it returns becomes the run's outcome, which is kept (Runs) for as long as the
// reaper's History says. If the process dies, the slot counts as run, unless RetryFailed is given.
//
// The error is fn's, joined with ErrLost where the lock was lost before fn returned. Where fn did
// not run, it is nil if somebody else has run the slot or is running, or is about to find out; and
// otherwise as of TryLock. name: 1 to 250 bytes. interval: at least 100 ms. ErrUnsupported without
// tables.
func (c *Client[TX]) OncePer(ctx context.Context, name string, interval time.Duration, fn func(ctx context.Context, l *Lock[TX]) error, options ...RunOption) (ran bool, err error) {
	fail := func(err error) (bool, error) { return false, &LockError{"onceper", name, err} }
	var config runConfig
	for _, o := range options {
		if o == nil {
			return fail(fmt.Errorf("%w: a nil RunOption", ErrInvalidOption))
		}
		o(&config)
	}
	if err := checkText(name); err != nil {
		return fail(fmt.Errorf("%w: %w", ErrInvalidName, err))
	}
	switch {
	case ctx == nil:
		return fail(fmt.Errorf("%w: the context is nil", ErrInvalidOption))
	case fn == nil:
		return fail(fmt.Errorf("%w: fn is nil", ErrInvalidOption))
	case interval < minInterval:
		return fail(fmt.Errorf("%w: an interval of %v: want at least %v", ErrInvalidOption, interval, minInterval))
	case c.keeper != nil:
		return fail(fmt.Errorf("%w: it needs locks in tables", ErrUnsupported))
	}
	if err := c.begin(); err != nil { // Close waits for the job, whose context it ends, and for its outcome
		return fail(err)
	}
	defer c.calls.Done()
	l, err := c.lockRun(ctx, name)
	if l == nil || err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.Unlock(ctx)) }()
	run := driver.Run{Name: name, Token: l.Token(), Session: l.hold.life.ID, Host: l.hold.owner.host, Thread: l.hold.owner.thread}
	began, ours, err := c.beginRun(ctx, run, interval, config.retry)
	if err != nil {
		c.disclaim(ctx, run, err)
		return fail(err)
	}
	if !ours {
		return false, nil
	}
	if err := c.confirm(ctx, l); err != nil { // it may have been lost before the slot was claimed, and another be running
		began.Failed, began.Detail = true, "the lock was lost before the job began"
		_ = c.endRun(ctx, began)
		return fail(err)
	}
	return true, c.run(ctx, l, began, fn)
}

// confirm asks the database whether a lock is held.
func (c *Client[TX]) confirm(ctx context.Context, l *Lock[TX]) error {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if err := context.Cause(l.hold.ctx); err != nil {
		return err
	}
	return c.write(ctx, l.hold, 1)
}

// beginRun claims the slot. After a reply that was lost it looks first whether it has: by now it
// may be the next slot's turn.
func (c *Client[TX]) beginRun(ctx context.Context, r driver.Run, interval time.Duration, retry bool) (run driver.Run, ours bool, err error) {
	for tries := 1; ; tries++ {
		err = c.statement(ctx, func(ctx context.Context) error {
			if tries > 1 {
				latest, err := c.engine.Runs(ctx, r.Name, time.Time{}, 1)
				if err != nil || len(latest) > 0 && latest[0].Token == r.Token {
					run, ours = append(latest, driver.Run{})[0], err == nil
					return err
				}
			}
			run, ours, err = c.engine.BeginRun(ctx, r, interval, retry)
			return err
		})
		if err == nil || !transient(err) || ctx.Err() != nil || tries >= 5 {
			return run, ours, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// disclaim ends a run that may have been claimed without its caller's knowing, so that RetryFailed
// may try the slot again.
func (c *Client[TX]) disclaim(ctx context.Context, run driver.Run, why error) {
	if residueOf(why) != unsure {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
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

// lockRun takes the lock of a job; nil where a run of it goes on. Somebody who has the lock only to
// look whether the slot has been run is waited for: by then it may be the next slot.
func (c *Client[TX]) lockRun(ctx context.Context, name string) (*Lock[TX], error) {
	ctx = context.WithValue(ctx, ownerKey{c}, nil) // a job that asks for itself is somebody else, and finds itself running
	for tries := 1; ; tries++ {
		l, err := c.TryLock(ctx, onceName(name))
		var taken *NotAcquiredError
		if !errors.As(err, &taken) {
			return l, err
		}
		for run, err := range c.Runs(ctx, name) {
			if err != nil || run.Token == taken.Token && run.Ended.IsZero() {
				return nil, err
			}
			break
		}
		if tries > 100 || ctx.Err() != nil { // many look, and one of them will run it
			return nil, ctx.Err()
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// run runs fn and writes what came of it, also when it panics.
func (c *Client[TX]) run(ctx context.Context, l *Lock[TX], run driver.Run, fn func(ctx context.Context, l *Lock[TX]) error) (err error) {
	run.Failed, run.Detail = true, "it panicked"
	defer func() {
		failure := c.endRun(ctx, run)
		if errors.Is(failure, ErrNotHeld) { // another has taken the slot over, which RetryFailed allows after a loss
			failure = lost(errors.New("another runs the slot"))
		}
		if failure != nil {
			err = errors.Join(err, &LockError{"onceper", run.Name, failure})
		}
	}()
	err = l.run(ctx, func(inner context.Context, l *Lock[TX]) error {
		if caller, ok := ctx.Value(ownerKey{c}).(owner); ok { // what the caller holds, the job enters again
			inner = caller.in(inner, c)
		}
		return fn(inner, l)
	})
	run.Failed, run.Detail = err != nil, ""
	if err != nil {
		run.Detail = clean(err.Error())
	}
	return err
}

// endRun writes an outcome, also when ctx has ended.
func (c *Client[TX]) endRun(ctx context.Context, run driver.Run) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for {
		err := c.statement(within, func(ctx context.Context) error { return c.engine.EndRun(ctx, run) })
		if !transient(err) || within.Err() != nil {
			return err
		}
		pause(within, 50*time.Millisecond)
	}
}

// Runs lists the runs of a job, the latest first. After a change of the interval a run gives its
// place in the list to a later one whose slot has the same number. The iteration ends after the
// first error.
func (c *Client[TX]) Runs(ctx context.Context, name string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		for before := (time.Time{}); ; {
			var page []driver.Run
			err := c.inquire(ctx, "runs", name, func(ctx context.Context) (err error) {
				page, err = c.engine.Runs(ctx, name, before, eventPage)
				return err
			})
			if err != nil {
				yield(Run{}, err)
				return
			}
			for _, r := range page {
				before = r.Began
				if !yield(runOf(r), nil) {
					return
				}
			}
			if len(page) < eventPage {
				return
			}
		}
	}
}

func runOf(r driver.Run) Run {
	run := Run{
		Name: r.Name, Slot: r.Slot, SlotEnds: r.SlotEnds, Token: r.Token, Host: r.Host, Thread: r.Thread, Began: r.Began,
		Ended: r.Ended, Tries: r.Tries,
	}
	if r.Failed {
		run.Err = r.Detail
	}
	return run
}

func onceName(name string) string { return "once/" + name }
