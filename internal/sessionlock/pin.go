package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// lostError is the error of an operation whose connection was lost, in contrast to an operation
// that was refused.
type lostError struct{ cause error }

func (e lostError) Error() string { return e.cause.Error() }
func (e lostError) Unwrap() error { return e.cause }

// failure returns the error for the caller: the server was unavailable, unless the connection ended
// because it cannot keep locks.
func (e lostError) failure() error {
	if errors.Is(e.cause, driver.ErrConfig) || errors.Is(e.cause, driver.ErrReadOnly) {
		return e.cause
	}
	return driver.Fail(driver.ErrUnavailable, e.cause)
}

// job is an operation and its callback. done is called without mu.
type job[K comparable] struct {
	op   Op[K]
	done func(p *pin[K], op Op[K], err error)
}

// pin is a pinned connection from its opening to its end. One goroutine owns the connection. Jobs
// that came while the connection was busy travel together.
type pin[K comparable] struct {
	kept context.Context // ends when the connection is lost, with the cause
	end  context.CancelCauseFunc

	wake      chan struct{}
	jobs      []job[K]           // guarded by the keeper's mu
	interrupt context.CancelFunc // ends Watch; nil: Watch does not run; guarded by the keeper's mu
	server    string             // "" until it is connected; guarded by the keeper's mu
}

// submit queues an operation on the pinned connection, and opens a connection if there is none.
// MUST be called with mu locked.
func (k *Keeper[K]) submit(op Op[K], done func(p *pin[K], op Op[K], err error)) {
	p := k.pin
	if p == nil {
		if k.closed {
			go done(nil, op, lostError{errClosed})
			return
		}
		p = &pin[K]{wake: make(chan struct{}, 1)}
		p.kept, p.end = context.WithCancelCause(context.Background())
		k.pin = p
		k.running.Go(func() { k.own(p) })
	}
	p.jobs = append(p.jobs, job[K]{op, done})
	select {
	case p.wake <- struct{}{}:
	default:
	}
	if p.interrupt != nil {
		p.interrupt()
	}
}

// own opens a connection and runs its jobs, until the connection is lost or the keeper is closed.
func (k *Keeper[K]) own(p *pin[K]) {
	ctx, cancel := context.WithTimeout(k.ctx, connectTimeout)
	conn, err := k.server.Pin(ctx)
	cancel()
	if err != nil {
		if k.ctx.Err() != nil {
			err = lostError{errClosed}
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = driver.Fail(driver.ErrUnavailable, err)
		}
		k.lose(p, nil, err)
		return
	}
	defer conn.Close()
	k.mu.Lock()
	p.server, k.reached = conn.Server(), true
	k.mu.Unlock()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	// One context and one timer serve all statements: making them for each would add to the cost of
	// a free lock.
	ctx, cancel = context.WithCancel(k.ctx)
	defer cancel()
	limit := time.AfterFunc(answerTimeout, cancel)
	limit.Stop()
	for {
		jobs, err := k.next(p, conn, timer)
		if err == nil {
			limit.Reset(answerTimeout)
			err = k.do(ctx, p, conn, jobs)
			limit.Stop()
			jobs = nil
		}
		if err != nil {
			k.lose(p, jobs, lostError{err})
			return
		}
	}
}

// next waits for jobs, and watches the connection after a while without jobs.
func (k *Keeper[K]) next(p *pin[K], conn Pin[K], timer *time.Timer) ([]job[K], error) {
	timer.Reset(quiet)
	for {
		k.mu.Lock()
		jobs := p.jobs
		p.jobs = nil
		k.mu.Unlock()
		if len(jobs) > 0 {
			return jobs, nil
		}
		select {
		case <-p.wake:
		case <-k.ctx.Done():
			return nil, errClosed
		case <-timer.C:
			if err := k.watch(p, conn); err != nil {
				return nil, err
			}
			timer.Reset(quiet)
		}
	}
}

func (k *Keeper[K]) watch(p *pin[K], conn Pin[K]) error {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	k.mu.Lock()
	if len(p.jobs) > 0 {
		k.mu.Unlock()
		return nil
	}
	p.interrupt = cancel
	k.mu.Unlock()
	err := conn.Watch(ctx)
	k.mu.Lock()
	p.interrupt = nil
	k.mu.Unlock()
	if k.ctx.Err() != nil {
		return errClosed
	}
	if err != nil {
		return fmt.Errorf("the connection that keeps this client's locks ended: %w", err)
	}
	return nil
}

// do does jobs until ctx ends, and reports their outcomes. Its error is the end of the connection;
// by then all outcomes have been reported.
func (k *Keeper[K]) do(ctx context.Context, p *pin[K], conn Pin[K], jobs []job[K]) error {
	ops := make([]*Op[K], len(jobs))
	for i := range jobs {
		ops[i] = &jobs[i].op
	}
	err := conn.Do(ctx, ops)
	switch {
	case err == nil:
	case k.ctx.Err() != nil:
		err = errClosed
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer within %v on the connection that keeps this client's locks: %w", answerTimeout, err)
	default:
		err = fmt.Errorf("the connection that keeps this client's locks failed: %w", err)
	}
	if err != nil {
		k.lose(p, jobs, lostError{err})
		return err
	}
	for _, j := range jobs {
		if j.op.Kind != Give || j.op.OK {
			continue
		}
		// Other locks of this connection cannot be trusted either, or cannot be released in another
		// way.
		if err = errDenied; j.op.Err != nil {
			err = fmt.Errorf("an unlocking failed, so that the connection that kept it was closed: %w", j.op.Err)
		}
		k.lose(p, nil, lostError{err})
		break
	}
	for _, j := range jobs {
		failure := j.op.Err
		if err != nil && (j.op.Kind != Give || !j.op.OK) {
			failure = lostError{err}
		}
		j.done(p, j.op, failure)
	}
	return err
}

// lose ends a connection, once, for its possessions and its jobs, both given and queued, before the
// connection is closed.
func (k *Keeper[K]) lose(p *pin[K], jobs []job[K], err error) {
	k.mu.Lock()
	if k.pin != p {
		k.mu.Unlock()
		return
	}
	k.pin = nil
	jobs = append(jobs, p.jobs...)
	p.jobs = nil
	held := 0
	for _, l := range k.lines {
		held += l.shares
		if l.exclusive {
			held++
		}
		l.exclusive, l.shares = false, 0
		k.forget(l)
	}
	cause := err
	var lost lostError
	if errors.As(err, &lost) {
		cause = lost.cause
	}
	p.end(cause)
	k.mu.Unlock()
	if held > 0 && !errors.Is(cause, errClosed) {
		k.log.Warn("dblock: the connection that keeps the locks was lost", "locks", held, "because", cause)
	}
	for _, j := range jobs {
		j.done(p, j.op, err)
	}
}
