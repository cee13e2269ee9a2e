package contract

import (
	"context"
	"errors"
	"time"
)

// CleanupTimeout is how long Unlock tries when its context has already ended.
const CleanupTimeout = 5 * time.Second

// ToUnlock is the context to unlock with: one of its own for CleanupTimeout where ctx has ended, or
// is under what is unlocked, which is a key of it then.
func ToUnlock(ctx context.Context, under any) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && ctx.Value(under) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), CleanupTimeout)
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
