package driver

import (
	"context"
	"time"
)

// Sweep is the part of an engine for a reaper, beside the transitions.
type Sweep interface {
	// Expired lists up to limit sessions that have expired and are not dead, in no order.
	Expired(ctx context.Context, limit int) ([]string, error)

	// Orphans lists up to limit locks and places in queues of sessions that are dead or have no
	// row, in no order. Where no index leads from a session to its locks, it reads the rows of all
	// names.
	Orphans(ctx context.Context, limit int) ([]Claim, error)

	// Expire ends an expired session for good, and reports whether it is dead now. A session
	// without a row gets one, so that the unique key decides and not a snapshot: it is dead
	// afterwards, unless it has a heartbeat that has not expired. ErrBusy where another call is
	// ending the session. Guarded transactions are no obstacle.
	Expire(ctx context.Context, session string) (bool, error)

	// Overdue lists up to limit locks whose fixed lease has expired, with their holders.
	Overdue(ctx context.Context, limit int) ([]State, error)

	// Miscounted lists up to limit names whose rows count other places or shares than there are
	// (protocol.Recount). It checks names with places or shares, and the names above after, up to
	// upto; "": to the last.
	Miscounted(ctx context.Context, after, upto string, limit int) ([]string, error)

	// Purge deletes up to limit lock rows that were unused for longer than idle. It reads the names
	// upwards from after, and returns the number of deleted rows and the name from which to
	// continue; "" at the end. It skips rows in use.
	Purge(ctx context.Context, idle time.Duration, after string, limit int) (deleted int, next string, err error)

	// Forget deletes up to limit dead sessions that started longer ago than idle and have no rows
	// that refer to them, and other rows that clients left behind that long ago.
	Forget(ctx context.Context, idle time.Duration, limit int) (int, error)

	// DropGuards deletes up to limit rows: those of MakeGuard for locks that are not held any more,
	// and those that refused takeovers have left. It skips rows that a transaction has locked. It
	// returns the number of deleted rows. If that is limit, there may be more.
	DropGuards(ctx context.Context, limit int) (deleted int, err error)

	// PurgeRecords deletes up to limit events and up to limit runs that ended longer ago than keep.
	// It keeps the events with a token of the present holder of a whole name, and the run of the
	// latest moment of each name.
	PurgeRecords(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)
}
