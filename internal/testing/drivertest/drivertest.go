// Package drivertest has the ways in which something leaves a name as calls, for tests of engines.
package drivertest

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Release releases a lock as its holder does. ErrNotHeld.
func Release(ctx context.Context, b driver.Names, h driver.Held, contended bool) ([]driver.Handoff, error) {
	next, left, err := b.Remove(ctx, protocol.Release(h, contended, false))
	if err == nil && !left {
		err = driver.ErrNotHeld
	}
	return next, err
}

// Undo gives an attempt up.
func Undo(ctx context.Context, b driver.Names, session, name, attempt string) ([]driver.Handoff, error) {
	next, _, err := b.Remove(ctx, protocol.Undo(session, name, attempt))
	return next, err
}

// TakeOver takes a name from a holder whose time is over.
func TakeOver(ctx context.Context, b driver.Names, self, name string, h driver.Holder) ([]driver.Handoff, bool, error) {
	return b.Remove(ctx, protocol.TakeOver(self, name, h))
}

// Break takes a name from a holder that lives.
func Break(ctx context.Context, b driver.Names, self, name string, h driver.Holder, e driver.Event) ([]driver.Handoff, bool, error) {
	return b.Remove(ctx, protocol.Break(self, name, h, e))
}

// ReleaseAll releases the locks without waiters, and returns the others.
func ReleaseAll(ctx context.Context, b driver.Names, held []driver.Held) (rest []driver.Held, err error) {
	_, released, err := b.Batch(ctx, nil, held)
	for i, h := range held {
		if err == nil && !released[i] {
			rest = append(rest, h)
		}
	}
	return rest, err
}

// Listen listens on a connection for the heartbeats of a session that it opens for that.
func Listen(ctx context.Context, b driver.Backend, session string, ready func(), wake func(driver.Hint)) error {
	up, err := b.Upkeep(ctx, session)
	if err != nil {
		return err
	}
	defer up.Close()
	return up.Listen(ctx, session, ready, wake)
}

// Ear is a connection for heartbeats that passes on what its listener hears.
type Ear struct {
	driver.Upkeep
	Ready func()                                             // called when it is ready; nil: nothing
	Hear  func(session string, hint driver.Hint) driver.Hint // what is passed on of a hint
}

// Listen is as of driver.Upkeep.
func (e Ear) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	return e.Upkeep.Listen(ctx, session, func() {
		if e.Ready != nil {
			e.Ready()
		}
		ready()
	}, func(h driver.Hint) { wake(e.Hear(session, h)) })
}
