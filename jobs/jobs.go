package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// minInterval is the shortest interval.
const minInterval = 100 * time.Millisecond

// maxOutcome limits the bytes of an outcome that are kept, the stack of a panic included.
const maxOutcome = 4096

// Func is a job. It runs under the lock l: ctx ends, with cause dblock.ErrLost, when that lock is
// lost. slot is when its slot began, by the database's clock. Its error is the outcome of the run.
type Func func(ctx context.Context, l *dblock.Lock, slot time.Time) error

// Runner runs the jobs of one client. It is safe for concurrent use.
type Runner struct{ client *client.Client }

// New makes a Runner of a client. It does no I/O, and starts nothing. Close of the client ends the
// contexts of its jobs, and waits for their outcomes. With a nil client the methods return
// dblock.ErrInvalidOption.
func New[TX any](c *dblock.Client[TX]) *Runner {
	if c == nil {
		c = new(dblock.Client[TX])
	}
	return &Runner{inside.Of(c)}
}

// Option configures the slots of a job.
type Option struct{ set func(j *job) }

// RetryFailed runs a slot again if its run failed, or its process died: up to most times. The first
// further run comes when backoff has passed since the failure (since the beginning of the run, if
// its process died), and each one after that twice as late. A slot of an interval ends: without a
// further run by then, the next slot follows. most: at least 1. backoff: 0 or more. Default: a slot
// is run once, failed or not.
func RetryFailed(most int, backoff time.Duration) Option {
	return Option{func(j *job) { j.retry, j.retries = driver.Retry{Most: most, Backoff: backoff}, true }}
}

// job is a job with its slots.
type job struct {
	*client.Client
	name    string
	slot    driver.Slot
	zone    *time.Location // of the slots that fn gets; nil: this machine's
	fn      Func
	retry   driver.Retry
	retries bool
}

// job validates a job.
func (r *Runner) job(
	ctx context.Context, name string, slot driver.Slot, zone *time.Location, fn Func, options []Option,
) (*job, error) {
	j := &job{Client: r.client, name: name, slot: slot, zone: zone, fn: fn}
	for _, o := range options {
		if o.set == nil {
			return nil, fmt.Errorf("%w: a zero Option", dblock.ErrInvalidOption)
		}
		o.set(j)
	}
	if err := contract.CheckJob(name); err != nil {
		return nil, fmt.Errorf("%w: %w", dblock.ErrInvalidName, err)
	}
	switch {
	case r.client == nil:
		return nil, client.ErrNone
	case ctx == nil:
		return nil, fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)
	case fn == nil:
		return nil, fmt.Errorf("%w: fn is nil", dblock.ErrInvalidOption)
	case j.retries && (j.retry.Most < 1 || j.retry.Backoff < 0):
		return nil, fmt.Errorf("%w: RetryFailed(%d, %v): want at least 1, and no negative backoff",
			dblock.ErrInvalidOption, j.retry.Most, j.retry.Backoff)
	case slot.Moment == 0 && slot.Times == nil && slot.Length < minInterval:
		return nil, fmt.Errorf("%w: an interval of %v: want at least %v",
			dblock.ErrInvalidOption, slot.Length, minInterval)
	}
	return j, nil
}

// lock returns the name of the job's lock.
func (j *job) lock() string { return contract.JobPrefix + j.name }

// in returns a time in the zone of the job.
func (j *job) in(t time.Time) time.Time {
	if j.zone == nil {
		return t
	}
	return t.In(j.zone)
}

// fail returns a LockError of an error; nil stays nil.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &dblock.LockError{Op: op, Name: name, Err: err}
}
