package contract

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CleanupTimeout is how long Unlock tries when its context has already ended.
const CleanupTimeout = 5 * time.Second

const (
	// CloseTimeout is how long Close works on what it can: longer than CleanupTimeout, for which it
	// waits for the application's transactions.
	CloseTimeout = 8 * time.Second
	// StuckTimeout is how long Close waits then for what was cut off. A function or a driver of the
	// application's may not end with its context.
	StuckTimeout = 2 * time.Second
)

// ErrStuck is what Close returns after that.
var ErrStuck = errors.New("a call of the client goes on that does not end with its context: " +
	"what is left ends with its session")

// ToUnlock is the context to unlock with: one of its own for CleanupTimeout where ctx has ended, or
// is under what is unlocked, which is a key of it then.
func ToUnlock(ctx context.Context, under any) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && ctx.Value(under) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
}

// WaitAtMost bounds the wait for a lock by d; 0: ctx alone bounds it. What it returns must not
// govern the lock afterwards.
func WaitAtMost(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("WaitAtMost %v: %w", d, context.DeadlineExceeded))
}

// EndOf is why a lock with this context has ended, or nil. A loss comes without the name of the
// lock, which the error gets anyway.
func EndOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) {
		return errors.Unwrap(cause)
	}
	return cause
}
