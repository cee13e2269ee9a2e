package optimistic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/transaction"
)

// Option configures Retry.
type Option func(*config)

type config struct {
	attempts       int
	first, longest time.Duration
}

// Attempts limits the calls of Retry's function: 1 or more. Default: 10.
func Attempts(n int) Option { return func(c *config) { c.attempts = n } }

// Backoff sets the pauses between two attempts: random, up to first after the first failure. The
// bound doubles after each further failure, up to longest. 0 < first ≤ longest ≤ 1 h. Default: 5 ms
// and 500 ms.
func Backoff(first, longest time.Duration) Option {
	return func(c *config) { c.first, c.longest = first, longest }
}

// Retry repeats fn while it loses a race. These errors mean a lost race: ErrConflict; ErrRetry,
// also that of LockTx, Guard and UnlockTx; a serialization failure or a deadlock on PostgreSQL
// (40001, 40P01); a deadlock, a lock wait timeout or a stale snapshot on MySQL and MariaDB (1213,
// 1205, 1020); a busy database or a stale snapshot on SQLite (SQLITE_BUSY, SQLITE_LOCKED). Engine
// errors, such as those of COMMIT, are recognised by code. fn MUST begin and end a transaction of
// its own each time.
//
// Retry returns the error of the last attempt, with the number of attempts. If ctx ends between two
// attempts, it joins the cause of ctx to that error. Other errors are returned unchanged.
func Retry(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	c := config{attempts: 10, first: 5 * time.Millisecond, longest: 500 * time.Millisecond}
	for _, o := range options {
		o(&c)
	}
	if err := c.validate(ctx, fn); err != nil {
		return fmt.Errorf("dblock: retry: %w", err)
	}
	pause := c.first
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := fn(ctx)
		if err == nil || !errors.Is(err, ErrConflict) && !transaction.Retryable(err) {
			return err
		}
		if attempt == c.attempts {
			return fmt.Errorf("dblock: gave up after %d attempts: %w", attempt, err)
		}
		// The pause is random from 0 on: losers of one race must not meet again.
		timer := time.NewTimer(rand.N(pause + 1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("dblock: stopped after %d attempts: %w: %w", attempt, context.Cause(ctx), err)
		}
		pause = min(2*pause, c.longest)
	}
}

func (c config) validate(ctx context.Context, fn func(context.Context) error) error {
	switch {
	case ctx == nil || fn == nil:
		return fmt.Errorf("%w: a nil context or function", ErrInvalid)
	case c.attempts < 1:
		return fmt.Errorf("%w: %d attempts: want 1 or more", ErrInvalid, c.attempts)
	case c.first <= 0 || c.first > c.longest || c.longest > time.Hour:
		return fmt.Errorf("%w: pauses from %v to %v: want 0 < first ≤ longest ≤ 1h", ErrInvalid, c.first, c.longest)
	}
	return nil
}
