package driver

import (
	"context"
	"time"
)

// Quorum is the part of an engine for locks in several databases (package quorum).
type Quorum interface {
	// Incarnation returns the age of the database's data, counted from the first call or the last
	// renewal, and its floor: no earlier token is above it; 0 if none is known. With renew the age
	// begins anew, with the given floor, which may be 0. A floor below 0 changes nothing. Floor is
	// then at least every token that the database knows of: those of its locks and its incarnation,
	// and that of its clock.
	Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error)
}

// Incarnation is the period for which a database remembers its locks. See package quorum.
type Incarnation struct {
	Age   time.Duration
	Floor int64
	Fresh bool // this call began it
}
