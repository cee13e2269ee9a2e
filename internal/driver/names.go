package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Names are the transitions of names. Package protocol has all of them. Change is the general way,
// and complete by itself: Take, Join, Remove and Batch leave the same rows as their namesakes of
// the protocol through Change, sooner where an engine has a short way.
type Names interface {
	// Change locks the row of a name, runs the transition on what it reads, writes what the
	// transition leaves, commits, and sends what is to be told. It returns the grants to waiters.
	// An error of the transition is returned, and nothing was done. The transition may run several
	// times, with the last run deciding. ErrBusy where an application's transaction has locked the
	// name's row.
	Change(ctx context.Context, how How, transition func(n *protocol.Name) error) ([]Handoff, error)

	// Take is protocol.Take. It makes a missing row of the name.
	Take(ctx context.Context, r Request) (Grant, bool, error)

	// Join is protocol.Join. It makes a missing row of the name.
	Join(ctx context.Context, r Request) (Grant, Outcome, error)

	// Remove is protocol.Remove. It returns the grants to waiters, and whether there was something
	// to take off. ErrBusy, and nothing was done, where a transaction guards the hold that would
	// leave.
	Remove(ctx context.Context, r Removal) (next []Handoff, left bool, err error)

	// Batch takes and releases locks for many callers in one transaction. It takes each name that
	// Take would take, and releases each lock that has no waiters. It does nothing for the others:
	// a row that is locked, a name that is held, a lock that is not held. It never waits for a row
	// that it finds locked, and may leave out a name that is new. All requests are for whole names,
	// of one member, without MinHold. A name is given once, except with several shares to release.
	// The results have the order of the arguments; a Grant with token 0 was not taken.
	Batch(ctx context.Context, takes []Request, releases []Held) (grants []Grant, released []bool, err error)
}

// How a name is changed.
type How struct {
	Name string
	Self string // the session that asks
	Make bool   // makes a missing row of the name; otherwise the transition finds nothing held there
	Wait bool   // false: ErrBusy at once, or after a moment, where an open transaction is in the way
}
