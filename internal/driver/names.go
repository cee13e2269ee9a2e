package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Names makes the transitions of names. Package protocol has all of them.
type Names interface {
	// Run runs transitions, and returns a result for each. With an error nothing was done, unless
	// the error is in doubt.
	//
	// A single op leaves the same rows as in package protocol. A protocol.Sequence of ops of one
	// name is one. Run makes a missing row of the name if the op has something to write there. The
	// op may run several times; its last result counts. ErrBusy where an application's transaction
	// has locked the name's row, and where a transaction guards the hold that would leave.
	//
	// Several ops, of several names, run in one transaction, each as far as no wait is needed. A
	// Take takes a name that is free. A release (Removal ByHolder) releases a lock that has no
	// waiters. All other cases are Undone: a locked row, a held name, a lock that is not held.
	// Such an op can be run by itself. Run never waits for a row that it finds locked, and may
	// leave out a name that is new. All takes are for whole names, of one member, without MinHold.
	// A name is given once, except with several shares to release.
	Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error)
}

// Do runs a single transition.
func Do(ctx context.Context, names Names, op protocol.Op) (protocol.Result, error) {
	results, err := names.Run(ctx, op)
	if err != nil {
		return protocol.Result{}, err
	}
	return results[0], nil
}
