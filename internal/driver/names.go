package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Names are the transitions of names. Package protocol has all of them.
type Names interface {
	// Run runs transitions, and returns a result for each. With an error nothing was done, unless
	// the error is in doubt.
	//
	// A single op leaves the same rows as in package protocol. Run makes a missing row of the name
	// where the op leaves something there. The op may run several times; its last result counts.
	// ErrBusy where an application's transaction has locked the name's row, and where a transaction
	// guards the hold that would leave.
	//
	// Several ops run in one transaction, each as far as nothing has to wait. A Take takes a name
	// that is free. A release (Removal ByHolder) releases a lock that has no waiters. Any other op
	// is Undone, and can be run by itself: of a row that is locked, of a name that is held, of a
	// lock that is not held. Run never waits for a row that it finds locked, and may leave out a
	// name that is new. All takes are for whole names, of one member, without MinHold. A name is
	// given once, except with several shares to release.
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
