package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// announced is the time for which a refused takeover keeps new guards of the hold from beginning.
const announced = 2 * time.Second

// stale says why a transaction must be repeated, with the SQLSTATE of a serialization failure.
type stale string

func (s stale) Error() string { return string(s) }

func (stale) SQLState() string { return "40001" }

func (inTx) Exclusive() bool { return false }

// MakeGuard writes the guard's row while the name's row is locked, and commits it: a later takeover
// sees the guard.
func (t inTx) MakeGuard(ctx context.Context, h protocol.Held, onSideConn driver.OnSideConn) error {
	return onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) error {
		return up.(upkeep).transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
			return nil, t.engine.makeGuard(ctx, q, h) // repeated, it finds the row
		})
	})
}

func (e *engine) makeGuard(ctx context.Context, q *mysqldb.Queries, h protocol.Held) error {
	row, there, err := e.lockRow(ctx, q, h.Name, true)
	if err != nil || !there {
		return notHeld(err)
	}
	attempt, there, err := attemptOf(ctx, q, row, h)
	if err != nil || !there {
		return notHeld(err)
	}
	if _, made, err := find(ctx, q.FindGuard, attempt); made || err != nil {
		return err
	}
	return q.MakeGuard(ctx, mysqldb.MakeGuardParams{Attempt: attempt, Name: h.Name, Session: h.Session})
}

// Guard first reads the hold outside the transaction, and then share-locks the guard's row inside
// it. It need not read again: the guard's row was made while the hold stood, and every takeover
// increments takeovers in that row. Only a hold that has ended loses the row.
func (t inTx) Guard(ctx context.Context, h protocol.Held, onSideConn driver.OnSideConn) error {
	if err := t.oneWriter(ctx, "Guard", onSideConn); err != nil {
		return err
	}
	var look mysqldb.LookGuardRow
	err := t.open(ctx, func() (err error) {
		look, err = t.lookGuard(ctx, h, onSideConn)
		return err
	})
	switch {
	case err != nil:
		return err
	case look.Wanted:
		return driver.Fail(driver.ErrRetry,
			stale("a takeover of the lock waits for guarded transactions to end: roll back and begin the "+
				"transaction again"))
	case !look.Made:
		return driver.Fail(driver.ErrRetry,
			stale("the guard of the lock was deleted: roll back and begin the transaction again"))
	}
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	guard, there, err := t.shareGuard(ctx, quiet, look.Attempt)
	switch here, other := text(guard.Server), text(look.Server); {
	case err != nil:
		return mysqlserver.Interpret(err)
	case !there: // an optimistic transaction of TiDB reads its snapshot here, too
		return errOlder
	case guard.Takeovers > 0:
		return driver.ErrNotHeld
	case here != other:
		return driver.Fail(driver.ErrUnavailable,
			fmt.Errorf("the transaction is on server %s, the client's own connection is on %s", here, other))
	}
	return t.engine.server().traceGuard(quiet, t, h, look.Attempt)
}

// errOlder is the error of a step that does not find in the transaction what was found beside it.
var errOlder = driver.Fail(driver.ErrRetry, stale("the transaction's snapshot is older than the lock, or than its "+
	"first guard: roll back and begin the transaction again"))

// shareGuard share-locks a guard's row. It waits in turns where it can only lock the row for
// itself: another guarded transaction of the hold may have it for long.
func (t inTx) shareGuard(
	ctx, quiet context.Context, attempt string,
) (guard mysqldb.ShareGuardRow, there bool, err error) {
	for {
		guard, there, err = find(quiet, t.queries().ShareGuard, attempt)
		switch {
		case !transaction.IsTurnOver(err):
			return guard, there, transaction.Ended(quiet, quiet, err)
		case ctx.Err() != nil:
			return guard, false, driver.Join(ctx.Err(), err)
		}
	}
}

// lookGuard reads a hold outside the caller's transaction. It returns ErrNotHeld if the hold has
// ended or its session is dead.
func (t inTx) lookGuard(
	ctx context.Context, h protocol.Held, onSideConn driver.OnSideConn,
) (look mysqldb.LookGuardRow, err error) {
	err = onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) error {
		return up.(upkeep).lone(ctx, func(q *mysqldb.Queries) (err error) {
			look, err = lookGuard(ctx, q, h)
			return err
		})
	})
	return look, err
}

func lookGuard(ctx context.Context, q *mysqldb.Queries, h protocol.Held) (look mysqldb.LookGuardRow, err error) {
	var there bool
	if h.Shared {
		var share mysqldb.LookShareGuardRow
		share, there, err = find(ctx, q.LookShareGuard, mysqldb.LookShareGuardParams{Name: h.Name, Session: h.Session,
			Token: h.Token})
		look = mysqldb.LookGuardRow(share)
	} else {
		look, there, err = find(ctx, q.LookGuard, mysqldb.LookGuardParams{Name: h.Name, Session: h.Session,
			Token: h.Token})
	}
	if err != nil || !there || !look.Held.Bool {
		return look, mysqlserver.Interpret(notHeld(err))
	}
	return look, nil
}

// announce keeps new guards of a hold from beginning, after a guard has refused a takeover. Only a
// takeover from a living holder needs that: a dead holder, or one past its fixed lease, begins no
// guard. Errors are ignored, since the next attempt of the takeover announces itself again.
func (e *engine) announce(ctx context.Context, attempt string) {
	_ = e.lone(ctx, func(q *mysqldb.Queries) error {
		_, err := q.WantHold(ctx, mysqldb.WantHoldParams{Attempt: attempt, Announced: announced.Microseconds()})
		return err
	})
}

// DropGuards deletes idle guards. The rows stay locked for the whole transaction: no client guards
// these holds any more.
func (e *engine) DropGuards(ctx context.Context, limit int) (int, error) {
	deleted := 0
	err := e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		idle, err := q.IdleGuards(ctx, int32(limit))
		if err != nil {
			return nil, err
		}
		for some := range slices.Chunk(idle, e.server().facts().rows(limit)) {
			locked, err := q.LockGuards(ctx, pad(some))
			if err = busy(err); errors.Is(err, driver.ErrBusy) {
				continue
			} else if err != nil {
				return nil, err
			}
			for _, attempt := range locked {
				if err := q.DropGuard(ctx, attempt); err != nil {
					return nil, err
				}
			}
			deleted += len(locked)
		}
		return nil, nil
	})
	if err != nil {
		return 0, err
	}
	var wanted []string
	err = e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		wanted, err = q.WantedNoMore(ctx, int32(limit))
		for _, attempt := range wanted {
			if err == nil {
				_, err = q.DropWanted(ctx, attempt)
			}
		}
		return err
	})
	return max(deleted, len(wanted)), err
}
