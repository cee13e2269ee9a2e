package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// call bounds one call of the engine, which uses the context that call returns. done MUST be called
// with the error of the engine, and returns the error for the client (interpret).
func (s *Store) call(ctx context.Context) (within context.Context, done func(err error) error) {
	within, cancel := context.WithTimeout(ctx, s.config.TTL)
	return within, func(err error) error {
		defer cancel()
		return s.interpret(ctx, within, err)
	}
}

// Call runs one call of the engine that is not a transition.
func (s *Store) Call(ctx context.Context, f func(ctx context.Context) error) error {
	within, done := s.call(ctx)
	return done(f(within))
}

// interpret converts an error of the engine for the client. If the bound of the call cut the call
// short, the database does not answer: ErrUnavailable. If the caller's context did, the error stays
// the caller's. ErrDenied after an earlier answer is an outage: the password is being changed.
func (s *Store) interpret(ctx, within context.Context, err error) error {
	switch {
	case err == nil:
		s.served.Store(true)
		return nil
	case errors.Is(err, driver.ErrDenied) && s.served.Load():
		return driver.Fail(driver.ErrUnavailable, err)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		cause := errors.New(err.Error())
		if why := s.usage(); why != nil {
			cause = fmt.Errorf("%w: %w", why, cause)
		}
		return driver.Fail(driver.ErrUnavailable, fmt.Errorf("no answer within %v: %w", s.config.TTL, cause))
	}
	if errors.Is(err, driver.ErrReadOnly) { // so that the next call does not meet the same connection
		s.Engine.DropReadOnly(within)
	}
	return err
}

// pastBroken repeats f while it meets connections that broke before it. After a restart of the
// server all idle connections of the pool are broken, and each try takes one out of the pool.
func (s *Store) pastBroken(ctx context.Context, f func() error) error {
	for tries := 0; ; tries++ {
		err := f()
		if !broken(err) || tries > max(s.Engine.Connections().Most, 10) || ctx.Err() != nil {
			return err
		}
	}
}

// usage returns how the pool is used, if that may explain a missing answer: errExhausted if there
// is no free connection, nil if there are free ones.
func (s *Store) usage() error {
	switch p := s.Engine.Connections(); {
	case p.Most == 0 && p.InUse == 0, p.InUse < p.Most:
		return nil
	case p.Most == 0:
		return errors.New(p.Full())
	default:
		return fmt.Errorf("%w, %s: raise its limit", errExhausted, p.Full())
	}
}

// Unanswered returns the error of a context that ended before the database said whether the name
// has a holder or a waiter.
func (s *Store) Unanswered(ctx context.Context, err error) error {
	// err is the bare error of a context if no statement was answered.
	bare := err == context.Canceled || err == context.DeadlineExceeded
	if why := s.usage(); bare && errors.Is(why, errExhausted) {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, why, Ended(ctx, err))
	}
	return fmt.Errorf("%w: no answer before the context ended: %w", driver.ErrUnavailable, Ended(ctx, err))
}
