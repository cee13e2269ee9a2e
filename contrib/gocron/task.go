package gocronlock

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/dblock-go/dblock"
)

// Task makes a function for gocron.NewTask that passes the lock on to the job. The context of fn
// ends with the context that gocron gives to the job, and, with cause dblock.ErrLost, when the lock
// is lost. The error of fn becomes the outcome of the slot (jobs.Runner.Runs), so that
// jobs.RetryFailed works.
//
// name is the name of the job: gocron.WithName(name). Without it, or if gocron does not use this
// Locker for the job, the function returns dblock.ErrNotHeld and does not run fn. If fn is nil, the
// function returns ErrInvalidOption.
func (k *Locker) Task(
	name string, fn func(ctx context.Context, l dblock.Handle) error,
) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if fn == nil {
			return invalid("the function of job %q is nil", name)
		}
		r := k.running(name)
		if r == nil {
			return fmt.Errorf("dblock: gocron: job %q has no lock (is the job's name gocron.WithName(%[1]q), and "+
				"this its locker?): %w", name, dblock.ErrNotHeld)
		}
		inner, cancel := until(ctx, r.lock.Context())
		defer cancel()
		returned := false
		defer func() {
			if returned {
				return
			}
			value := recover()
			r.outcome = fmt.Errorf("it panicked: %v\n%s", value, debug.Stack())
			if value != nil {
				panic(value)
			}
		}()
		r.outcome = fn(inner, r.lock)
		returned = true
		return r.outcome
	}
}

// until returns ctx, ended also by the end of lock, with its cause.
func until(ctx, lock context.Context) (context.Context, func()) {
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })
	return inner, func() { stop(); cancel(nil) }
}
