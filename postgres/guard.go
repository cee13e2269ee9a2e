package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// guardLockTimeout bounds the wait of Guard for a takeover of the same hold, which is one short
	// transaction.
	guardLockTimeout = "1s"
	// announced is the time for which a refused takeover keeps new guards of the hold from
	// beginning.
	announced = 2 * time.Second
)

func (inTx) Exclusive() bool { return false }

// MakeGuard runs one transaction on a connection of the side pool, and one round trip over pgx.
func (t inTx) MakeGuard(ctx context.Context, h protocol.Held, onSideConn driver.OnSideConn) error {
	var attempt string
	var made bool
	var row postgresdb.LockRowWithinRow
	err := onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) error {
		return pgserver.Interpret(up.(upkeep).conn.transact(ctx,
			lockRowWithin(usualLockTimeout, h.Name, &row),
			query(postgresdb.MakeGuard, postgresdb.MakeGuardParams{Name: h.Name, Session: h.Session, Token: h.Token}),
			query(postgresdb.FindGuard, postgresdb.FindGuardParams{Name: h.Name, Session: h.Session,
				Token: h.Token}).found(&attempt, &made),
		))
	})
	switch {
	case err != nil || made:
		return err
	case row.Busy:
		return pgserver.Interpret(errOccupied)
	}
	return driver.ErrNotHeld
}

// Guard is one round trip over pgx. It locks the guard's row first, and then reads without a lock
// whether the hold stands: a takeover writes the guard's row, while a waiter that joins the queue
// writes only the lock's.
func (t inTx) Guard(ctx context.Context, h protocol.Held, _ driver.OnSideConn) error {
	var attempt string
	var shared, answered bool
	var row postgresdb.IsHeldRow
	err := t.behind(ctx, t.tx,
		borrowLockTimeout(guardLockTimeout),
		query(postgresdb.ShareGuard, postgresdb.ShareGuardParams{Name: h.Name, Session: h.Session,
			Token: h.Token}).found(&attempt, &shared),
		isHeld(h).found(&row, &answered),
		restoreLockTimeout,
		release,
	)
	switch {
	case err != nil:
		return pgserver.Interpret(err)
	case row.Held && shared:
		return nil
	case row.Held && row.Wanted:
		return pgserver.Interpret(stale("a takeover of the lock waits for guarded transactions to end: roll back " +
			"and begin the transaction again"))
	case row.Held:
		return pgserver.Interpret(stale("the transaction's snapshot may be older than the guard of the lock: roll " +
			"back and begin it again"))
	case row.Unseen:
		return pgserver.Interpret(tooOld)
	}
	return driver.ErrNotHeld
}

func isHeld(h protocol.Held) statement {
	return query(postgresdb.IsHeld, postgresdb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token})
}

// stale says why a transaction must be repeated: a serialization failure that the server does not
// notice.
type stale string

func (s stale) Error() string { return string(s) }

func (stale) SQLState() string { return pgserver.SerializationFailure }

// tooOld is the error of a snapshot that may be older than the grant.
const tooOld stale = "the transaction's snapshot may be older than the lock: roll back and begin it again"

func (e *engine) DropGuards(ctx context.Context, limit int) (int, error) {
	guards, err := e.list(ctx, query(postgresdb.DropGuards, int32(limit)))
	if err != nil {
		return 0, err
	}
	wanted, err := e.list(ctx, query(postgresdb.DropWanted, int32(limit)))
	return max(len(guards), len(wanted)), err
}
