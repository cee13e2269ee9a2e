// Package contract has what every client of locks has in common, in tables or on the server's own
// locks: the options of a lock, the kinds of failure, the handle. Package dblock documents them
// under names of its own.
package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// The kinds of failure that a client itself finds.
var (
	ErrNotAcquired   = errors.New("not acquired")
	ErrLost          = errors.New("lost")
	ErrStalled       = errors.New("its holder made no progress")
	ErrLeaseOver     = errors.New("its fixed lease is over")
	ErrDeadlock      = errors.New("deadlock")
	ErrClosed        = errors.New("the client is closed")
	ErrInvalidName   = errors.New("invalid lock name")
	ErrInvalidOption = errors.New("invalid option")
)

// ErrNilContext is what a nil context gets.
var ErrNilContext = fmt.Errorf("%w: the context is nil", ErrInvalidOption)

// ErrUnlocked is the cause with which a lock ends that was unlocked.
var ErrUnlocked = fmt.Errorf("%w: unlocked", driver.ErrNotHeld)

// Lost is ErrLost with its reason.
func Lost(reason error) error { return fmt.Errorf("%w: %w", ErrLost, reason) }

// JoinUnlock joins what was done under a lock with its Unlock. That the lock was lost is said once.
func JoinUnlock(done, unlocked error) error {
	if errors.Is(done, ErrLost) && errors.Is(unlocked, ErrLost) {
		return done
	}
	return driver.Join(done, unlocked)
}

// UntilClosed is ctx that also ends, with cause ErrClosed, when another one does.
func UntilClosed(ctx, other context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(ErrClosed) })
	return within, func() { stop(); cancel(nil) }
}
