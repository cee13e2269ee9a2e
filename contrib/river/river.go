// Package riverlock limits how many jobs of a key run at once, over all workers of River
// (github.com/riverqueue/river), with the locks of package dblock.
//
//	limit, err := riverlock.New(client.Locker(), "jobs", func(job *rivertype.JobRow) riverlock.Limit {
//		return riverlock.Limit{Key: "customer/" + gjson.GetBytes(job.EncodedArgs, "customer").String(), Permits: 2}
//	})
//	…
//	river.NewClient(driver, &river.Config{Middleware: []rivertype.Middleware{limit}, …})
//
// A job takes one permit of its key and keeps it while it is worked. A job that finds none is
// snoozed, and its worker continues with the next one. The permits of a worker that dies are
// released after the TTL of its client. A job whose permit is lost is notified: its context ends.
//
// # Limits of River
//
// River has no place where a job could wait for its permit, so there is no order: a snoozed job
// tries again later, and any other job of the key may overtake it. Each attempt costs one or two
// statements of dblock, and an update of River's.
//
// River does not know of the limit when it fetches jobs: while many jobs of one key are tried and
// snoozed, others wait for the workers.
package riverlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/dblock-go/dblock"
)

// defaultSnooze is the average delay of a job that found no permit.
const defaultSnooze = time.Second

// Limit tells which jobs share their permits.
type Limit struct {
	Key     string // jobs with the same key share them; "": the job has no limit
	Permits int    // the number of these jobs that run at once: 1 or more
}

// Option configures a Middleware.
type Option func(*Middleware)

// Snooze sets the average delay of a job that found no permit: between half and one and a half
// times as long, so that jobs do not retry together. It is more than 0. Default: 1 s.
func Snooze(d time.Duration) Option { return func(m *Middleware) { m.snooze = d } }

// Middleware is a rivertype.WorkerMiddleware, for river.Config.Middleware. It is safe for
// concurrent use.
type Middleware struct {
	river.MiddlewareDefaults
	client dblock.Locker
	prefix string
	limit  func(job *rivertype.JobRow) Limit
	snooze time.Duration
}

var _ rivertype.WorkerMiddleware = (*Middleware)(nil)

// New makes a Middleware. limit is called for each job before it is worked. The permits of a key
// are a semaphore named dblock.Name(prefix, key): choose a prefix that the application uses for
// nothing else. New does no I/O.
//
// It returns ErrInvalidOption for a nil client, function or option, an empty prefix, and a snooze
// that is not above 0.
func New(
	client dblock.Locker, prefix string, limit func(job *rivertype.JobRow) Limit, options ...Option,
) (*Middleware, error) {
	m := &Middleware{client: client, prefix: prefix, limit: limit, snooze: defaultSnooze}
	for _, o := range options {
		if o == nil {
			return nil, invalid("a nil Option")
		}
		o(m)
	}
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case limit == nil:
		return nil, invalid("the function is nil")
	case prefix == "":
		return nil, invalid("the prefix is empty")
	case m.snooze <= 0:
		return nil, invalid(fmt.Sprintf("Snooze(%v): want more than 0", m.snooze))
	}
	return m, nil
}

// Work works the job under a permit of its key, or snoozes it if there is none. The context of the
// job ends with cause dblock.ErrLost when the permit is lost. The job then counts as failed, even
// if it has returned nil, and River retries it. The same holds if the database of the locks is
// unavailable: the error is that of dblock.Client.TryLock.
//
// If the number of permits of a key has changed, the smaller one counts as long as a job with it
// runs. While readers share the key (dblock.Shared, dblock.ErrCapacity), its jobs are snoozed.
func (m *Middleware) Work(
	ctx context.Context, job *rivertype.JobRow, work func(ctx context.Context) error,
) (err error) {
	limit := m.limit(job)
	if limit.Key == "" {
		return work(ctx)
	}
	permit, err := m.client.TryLock(ownerless{ctx}, dblock.Name(m.prefix, limit.Key), dblock.Permits(1, limit.Permits))
	switch {
	case errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, dblock.ErrCapacity):
		return river.JobSnooze(m.snooze/2 + rand.N(m.snooze))
	case err != nil:
		return err
	}
	defer func() {
		// after any other error the client retries
		if failure := permit.Unlock(ctx); errors.Is(failure, dblock.ErrLost) {
			err = errors.Join(err, failure)
		}
	}()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(permit.Context(), func() { cancel(context.Cause(permit.Context())) })()
	return work(inner)
}

// ownerless is a context without values, so that a permit taken under it has no owner yet, also if
// River's client was started under the context of a lock.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func invalid(what string) error {
	return fmt.Errorf("dblock: river: %w: %s", dblock.ErrInvalidOption, what)
}
