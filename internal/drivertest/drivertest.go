// Package drivertest has the ways in which something leaves a name as calls, for tests of engines.
package drivertest

import (
	"context"
	"testing"

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

// Beating opens a connection for the heartbeats of a session, which its listener needs, until the
// test has ended.
func Beating(t testing.TB, b driver.Backend, session string) {
	t.Helper()
	up, err := b.Upkeep(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
}
