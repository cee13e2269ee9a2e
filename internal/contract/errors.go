// Package contract has the parts that are common to all clients of locks, in tables or on the
// server's own locks: the options of a lock, the kinds of failure, the handle. Package dblock
// documents them under names of its own.
package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// The kinds of failure that a client itself detects.
var (
	ErrNotAcquired   = errors.New("not acquired")
	ErrLost          = errors.New("lost")
	ErrStalled       = errors.New("its holder made no progress")
	ErrLeaseOver     = errors.New("its fixed lease has expired")
	ErrDeadlock      = errors.New("deadlock")
	ErrClosed        = errors.New("the client is closed")
	ErrInvalidName   = errors.New("invalid lock name")
	ErrInvalidOption = errors.New("invalid option")
)

// ErrNilContext is the error for a nil context.
var ErrNilContext = fmt.Errorf("%w: the context is nil", ErrInvalidOption)

// ErrUnlocked is the cause with which the context of an unlocked lock ends.
var ErrUnlocked = fmt.Errorf("%w: unlocked", driver.ErrNotHeld)

// Lost returns ErrLost with its reason.
func Lost(reason error) error { return fmt.Errorf("%w: %w", ErrLost, reason) }

// JoinUnlock joins the error of the work under a lock with that of Unlock. It reports a loss once.
func JoinUnlock(done, unlocked error) error {
	if errors.Is(done, ErrLost) && errors.Is(unlocked, ErrLost) {
		return done
	}
	return driver.Join(done, unlocked)
}

// UntilClosed returns ctx with a second end: when other ends, with cause ErrClosed.
func UntilClosed(ctx, other context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(ErrClosed) })
	return within, func() { stop(); cancel(nil) }
}
