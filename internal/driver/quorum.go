package driver

import (
	"context"
	"time"
)

// Quorum is what a lock in several databases needs (package quorum).
type Quorum interface {
	// Incarnation returns the age of the database's data, counted from the first call or the last
	// renewal, and its floor: a token that no earlier one was above, or 0 if none is known. With
	// renew the age begins anew, with the given floor, which may be 0. A floor below 0 changes
	// nothing. Floor is then at least every token that the database knows of: those of its locks
	// and its incarnation, and that of its clock.
	Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error)
}

// Incarnation tells how long a database remembers. See package quorum.
type Incarnation struct {
	Age   time.Duration
	Floor int64
	Fresh bool // this call made it
}
