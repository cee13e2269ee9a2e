// Package drivertest has the ways in which something leaves a name as calls, for tests of engines.
package drivertest

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Take runs protocol.Take.
func Take(ctx context.Context, b driver.Names, r protocol.Request) (protocol.Grant, bool, error) {
	result, err := driver.Do(ctx, b, protocol.Take{Request: r})
	return result.Grant, result.Done(), err
}

// Join runs protocol.Join.
func Join(ctx context.Context, b driver.Names, r protocol.Request) (protocol.Grant, protocol.Outcome, error) {
	result, err := driver.Do(ctx, b, protocol.Join{Request: r})
	return result.Grant, result.Outcome, err
}

// Remove runs a removal.
func Remove(ctx context.Context, b driver.Names, r protocol.Removal) ([]protocol.Handoff, bool, error) {
	result, err := driver.Do(ctx, b, r)
	return result.Next, result.Done(), err
}

// Release releases a lock as its holder does. ErrNotHeld.
func Release(ctx context.Context, b driver.Names, h protocol.Held, contended bool) ([]protocol.Handoff, error) {
	next, left, err := Remove(ctx, b, protocol.Release(h, contended, false))
	if err == nil && !left {
		err = driver.ErrNotHeld
	}
	return next, err
}

// Undo gives an attempt up.
func Undo(ctx context.Context, b driver.Names, session, name, attempt string) ([]protocol.Handoff, error) {
	next, _, err := Remove(ctx, b, protocol.Undo(session, name, attempt))
	return next, err
}

// TakeOver takes a name from a holder that has expired.
func TakeOver(
	ctx context.Context, b driver.Names, self, name string, h protocol.Holder,
) ([]protocol.Handoff, bool, error) {
	return Remove(ctx, b, protocol.TakeOver(self, name, h))
}

// Break takes a name from a holder that lives.
func Break(
	ctx context.Context, b driver.Names, self, name string, h protocol.Holder, e protocol.Event,
) ([]protocol.Handoff, bool, error) {
	return Remove(ctx, b, protocol.Break(self, name, h, e))
}

// Batch takes and releases locks in one batch. The grant of a name that was not taken has no token.
func Batch(
	ctx context.Context, b driver.Names, takes []protocol.Request, releases []protocol.Held,
) (grants []protocol.Grant, released []bool, err error) {
	var ops []protocol.Op
	for _, r := range takes {
		ops = append(ops, protocol.Take{Request: r})
	}
	for _, h := range releases {
		ops = append(ops, protocol.Release(h, false, false))
	}
	if len(ops) == 1 { // an op alone is no batch
		none := protocol.Held{Name: "no such name", Session: "none", Token: 1}
		ops = append(ops, protocol.Release(none, false, false))
	}
	results, err := b.Run(ctx, ops...)
	if err != nil {
		return nil, nil, err
	}
	for i := range takes {
		grants = append(grants, results[i].Grant)
	}
	for i := range releases {
		released = append(released, results[len(takes)+i].Done())
	}
	return grants, released, nil
}

// ReleaseAll releases the locks without waiters in one batch, and returns the others.
func ReleaseAll(ctx context.Context, b driver.Names, held []protocol.Held) (rest []protocol.Held, err error) {
	_, released, err := Batch(ctx, b, nil, held)
	for i, done := range released {
		if !done {
			rest = append(rest, held[i])
		}
	}
	return rest, err
}

// General is an op that an engine runs the general way: it has a short way for no such type.
type General struct{ protocol.Op }

// Func is an op of a test.
type Func struct {
	Name string
	Self string
	Do   func(n *protocol.Name) error
}

// On is as of protocol.Op.
func (f Func) On() string { return f.Name }

// By is as of protocol.Op.
func (f Func) By() string { return f.Self }

// Apply is as of protocol.Op.
func (f Func) Apply(n *protocol.Name) (protocol.Result, error) {
	if err := f.Do(n); err != nil {
		return protocol.Result{}, err
	}
	return protocol.Result{Outcome: protocol.Done, Next: n.Handoffs}, nil
}

// Listen listens on a connection for the heartbeats of a session that it opens for that.
func Listen(ctx context.Context, b driver.Backend, session string, ready func(), wake func(protocol.Hint)) error {
	up, err := b.Upkeep(ctx, session)
	if err != nil {
		return err
	}
	defer up.Close()
	return up.Listen(ctx, session, ready, wake)
}
