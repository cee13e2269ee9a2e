// Package fakedb has engines that a test has in its hand: it sees each call, delays it, refuses it,
// loses its answer, or changes it.
package fakedb

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Hook runs in place of a call of an engine. It runs the call with Do, once or never, and returns
// the error that the caller gets.
type Hook func(ctx context.Context, c *Call) error

// Call is a call of an engine.
type Call struct {
	Method  string            // of driver.Backend or driver.Upkeep
	Engine  driver.Backend    // of Run: the engine below the hook
	Session string            // of most methods about one session
	Ops     []protocol.Op     // of Run; a hook may change them before Do
	Results []protocol.Result // of Run, after Do; a hook may change them, and set them in place of Do
	States  []driver.State    // of Read, after Do; a hook may change them
	Waiters int               // of Read: how many
	Waits   []driver.Wait     // of WaitGraph, after Do; a hook may change them
	Rows    int               // of a list, after Do: how many
	Alive   bool              // of Heartbeat and Beat: the answer

	Ready func()                              // of Listen: called when nothing is missed any more; nil: nothing
	Hear  func(h protocol.Hint) protocol.Hint // of Listen: changes what is heard; nil: nothing changes

	do func(ctx context.Context, c *Call) error
}

// Do runs the call on the engine.
func (c *Call) Do(ctx context.Context) error { return c.do(ctx, c) }

// Op is the op that is run by itself; nil for any other call.
func (c *Call) Op() protocol.Op {
	if len(c.Ops) == 1 {
		return c.Ops[0]
	}
	return nil
}

// Each calls f with each op of the call, those of a Sequence one by one, and with its result, after
// Do.
func (c *Call) Each(f func(op protocol.Op, result protocol.Result)) {
	for i, result := range c.Results {
		ops, several := c.Ops[i].(protocol.Sequence)
		if !several {
			f(c.Ops[i], result)
		}
		for j, op := range ops {
			f(op, result.Each[j])
		}
	}
}

// Removes reports whether the call is a removal for one of these causes alone.
func (c *Call) Removes(causes ...protocol.Cause) bool {
	r, is := c.Op().(protocol.Removal)
	return is && slices.Contains(causes, r.Cause)
}

// Moves reports whether the call is an op that is no Take, Join or Removal, nor several of them.
func (c *Call) Moves() bool {
	switch c.Op().(type) {
	case nil, protocol.Take, protocol.Join, protocol.Removal, protocol.Sequence:
		return false
	}
	return true
}

// Beats reports whether the call is a heartbeat.
func (c *Call) Beats() bool { return c.Method == "Heartbeat" || c.Method == "Beat" }

// Taken is the request of a Take that is done, after Do.
func (c *Call) Taken() (r protocol.Request, done bool) {
	take, is := c.Op().(protocol.Take)
	return take.Request, is && len(c.Results) == 1 && c.Results[0].Done()
}

// Grant has a request by itself be granted.
func (c *Call) Grant(g protocol.Grant) {
	c.Results = []protocol.Result{{Outcome: protocol.Done, Grant: g}}
}

// Outcome has an op by itself end so.
func (c *Call) Outcome(o protocol.Outcome) { c.Results = []protocol.Result{{Outcome: o}} }

// Count has a hook count the calls that match, before they run.
func Count(n *atomic.Int64, match func(c *Call) bool) Hook {
	return func(ctx context.Context, c *Call) error {
		if match(c) {
			n.Add(1)
		}
		return c.Do(ctx)
	}
}

// After has something done after the calls that match.
func After(match func(c *Call) bool, do func()) Hook {
	return func(ctx context.Context, c *Call) error {
		err := c.Do(ctx)
		if match(c) {
			do()
		}
		return err
	}
}

// Silent is a database that answers nothing but the opening of a session.
func Silent() driver.Backend {
	return Hooked(memory.NewLink(memory.NewDB()), func(ctx context.Context, c *Call) error {
		if c.Method == "OpenSession" {
			return c.Do(ctx)
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// ErrLost is the error of a call whose answer is lost.
var ErrLost = driver.Fail(driver.ErrUnavailable, errors.New("the connection was cut"))
