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

// Attempts sets how often Retry calls its function at most: 1 or more. Default: 10.
func Attempts(n int) Option { return func(c *config) { c.attempts = n } }

// Backoff sets the pauses between two attempts: a random time, of up to first after the first
// failure and twice as much after each further one, but never above longest. 0 < first ≤ longest ≤
// 1 h. Default: 5 ms and 500 ms.
func Backoff(first, longest time.Duration) Option {
	return func(c *config) { c.first, c.longest = first, longest }
}

// Retry calls fn until it does anything but lose a race: until its error is neither ErrConflict nor
// one that the engine tells of a whole transaction that must be repeated, by its code: a
// serialisation failure or a deadlock on PostgreSQL (40001, 40P01), a deadlock, a lock wait that
// took too long or a stale snapshot on MySQL and MariaDB (1213, 1205, 1020), a busy database or a
// stale snapshot on SQLite (SQLITE_BUSY, SQLITE_LOCKED). fn begins a transaction of its own each
// time, and ends it.
//
// It returns the error of the last attempt, and says how many there were. Where ctx ends, between
// two attempts, the error is its cause beside that of the last attempt. Errors that another attempt
// would not change are returned as they are.
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
		// Anything from nothing to the whole pause: those who lost together must not meet again.
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
