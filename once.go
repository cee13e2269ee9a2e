package dblock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/client"
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

// OncePer runs fn if no process has done so in this slot, over all processes: a slot is as long as
// interval, on the database's clock, and begins where that, in microseconds since 1970, is a
// multiple of it. Call it from every process as often as you like (a ticker, cron): ran tells
// whether it was this call. At most one call runs a slot, however short fn is and however far the
// processes' clocks are apart. Runs of a name do not overlap either: while one goes on, in whatever
// slot, others are not begun. The first slot after that is run by the next call; those that
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
// not run, it is nil if another call has run the slot or is running, or is about to find out; and
// otherwise as of TryLock. name: 1 to 250 bytes. interval: at least 100 ms. ErrUnsupported without
// tables.
func (c *Client[TX]) OncePer(ctx context.Context, name string, interval time.Duration, fn func(ctx context.Context, l *Lock[TX]) error, options ...RunOption) (ran bool, err error) {
	var config runConfig
	for _, o := range options {
		if o == nil {
			return false, &LockError{"onceper", name, fmt.Errorf("%w: a nil RunOption", ErrInvalidOption)}
		}
		o(&config)
	}
	err = checkText(name)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrInvalidName, err)
	case ctx == nil:
		err = fmt.Errorf("%w: the context is nil", ErrInvalidOption)
	case fn == nil:
		err = fmt.Errorf("%w: fn is nil", ErrInvalidOption)
	case interval < minInterval:
		err = fmt.Errorf("%w: an interval of %v: want at least %v", ErrInvalidOption, interval, minInterval)
	}
	if err != nil {
		return false, &LockError{"onceper", name, err}
	}
	want, err := wantOf(onceName(name), nil)
	if err != nil {
		return false, &LockError{"onceper", name, err}
	}
	ran, outcome, failure := c.core.Job(ctx, name, want, interval, config.retry, func(ctx context.Context, l *client.Lock) error {
		return fn(ctx, &Lock[TX]{c, l})
	})
	return ran, errors.Join(outcome, fail("onceper", name, failure))
}

// Runs lists the runs of a job, the latest first. After a change of the interval a run gives its
// place in the list to a later one whose slot has the same number. The iteration ends after the
// first error.
func (c *Client[TX]) Runs(ctx context.Context, name string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		for before := (time.Time{}); ; {
			var page []driver.Run
			err := c.inquire(ctx, "runs", name, func(ctx context.Context, engine driver.Backend) (err error) {
				page, err = engine.Runs(ctx, name, before, pageSize)
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
			if len(page) < pageSize {
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
