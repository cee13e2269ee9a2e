package contract

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CleanupTimeout limits how long Unlock tries when its context has already ended.
const CleanupTimeout = 5 * time.Second

const (
	// CloseTimeout limits how long Close works. It is longer than CleanupTimeout, for which Close
	// waits for the application's transactions.
	CloseTimeout = 8 * time.Second
	// StuckTimeout limits how long Close then waits for calls that it has cancelled. A function or
	// a driver of the application's may not end with its context.
	StuckTimeout = 2 * time.Second
)

// ErrStuck is the error of Close after that.
var ErrStuck = errors.New("a call of the client has not ended with its context: remaining locks end with their session")

// ToUnlock returns the context for an Unlock: a new one for CleanupTimeout where ctx has ended, or
// ends with the lock; then under is a key of ctx. Otherwise it returns ctx.
func ToUnlock(ctx context.Context, under any) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && ctx.Value(under) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
}

// WaitAtMost bounds the wait for a lock by d; 0: only ctx bounds it. The returned context must not
// govern the lock afterwards.
func WaitAtMost(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("WaitAtMost %v: %w", d, context.DeadlineExceeded))
}

// EndOf returns the reason why a lock with this context has ended, or nil. The error of a loss is
// without the name of the lock, which the caller adds.
func EndOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) {
		return errors.Unwrap(cause)
	}
	return cause
}
