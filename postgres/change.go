package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// remakes is how often the row of a name is made where it is missing: it may be purged at once.
const remakes = 3

var errPurged = driver.Fail(driver.ErrRetry, errors.New("the name's row was purged again and again"))

// general runs an op once more whose hints the server refused: the queue of notifications was full
// at the COMMIT, though not when the hints were written. Then they are left out. So it does where
// the sequence of the events' ids is behind: then it is not asked.
func (e *engine) general(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	addEvent := postgresdb.AddEvent
	for try := 0; ; try++ {
		result, err := e.generalOnce(ctx, op, addEvent)
		switch state := pgserver.State(err); {
		case state == pgserver.LimitExceeded && try == 0:
		case state == pgserver.UniqueViolation && try < aheads:
			addEvent = postgresdb.AddEventAhead
		default:
			return result, err
		}
	}
}

// generalOnce is two round trips over pgx, and one more for each thing that the op reads beside the
// first page of the queue. In between the server ends the transaction if the process falls silent:
// the name's row does not stay locked.
func (e *engine) generalOnce(ctx context.Context, op protocol.Op, addEvent string) (protocol.Result, error) {
	for try := range remakes {
		result, missing, err := e.change(ctx, op, try > 0, addEvent)
		if err != nil || !missing {
			return result, err
		}
	}
	return protocol.Result{}, errPurged
}

// change runs an op, unless a missing row is to be made: then it does nothing, and is to be called
// again with make.
func (e *engine) change(ctx context.Context, op protocol.Op, make bool, addEvent string) (result protocol.Result, missing bool, err error) {
	s := &source{ctx: ctx, name: op.On()}
	timeout := e.lockTimeoutFor(protocol.Waits(op))
	statements := s.open(query(postgresdb.LockName, postgresdb.LockNameParams{
		Name: op.On(), LockTimeout: timeout, Silence: milliseconds(silence(ctx)),
	}))
	if make {
		statements = append([]statement{
			query(postgresdb.SetLockTimeout, timeout), query(postgresdb.EnsureRow, op.On()),
		}, statements...)
	}
	tx, err := e.db.begin(ctx, statements...)
	if err != nil {
		return result, false, pgserver.Interpret(err)
	}
	s.tx = tx
	if !s.locked {
		err = s.exec(query(postgresdb.Now, struct{}{}).into(&s.row.Now, func() {}))
	}
	n := s.read()
	if err == nil {
		result, err = op.Run(n)
	}
	if err != nil {
		tx.rollback(ctx)
		e.refused(ctx, s)
		return protocol.Result{}, false, err
	}
	if !s.locked && n.Changed() {
		tx.rollback(ctx)
		return protocol.Result{}, true, nil
	}
	var writes []statement
	if s.locked {
		writes = append(write(n, addEvent), tell(n, reversible(s.before, n)))
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return protocol.Result{}, false, pgserver.Interpret(err)
	}
	return result, false, nil
}

// refused keeps new guards of a hold from beginning, whose takeover was refused by one: its session
// is dead all the same, or the takeover is announced. It is a courtesy to itself: where it fails,
// the next try of the takeover repeats it.
func (e *engine) refused(ctx context.Context, s *source) {
	if s.expired != "" {
		_, _ = e.Expire(ctx, s.expired)
	}
	if s.wanted != "" {
		_ = e.db.exec(ctx, query(postgresdb.WantHold, postgresdb.WantHoldParams{Attempt: s.wanted, Announced: announced.Microseconds()}))
	}
}

const (
	reapersSilence  = 2 * time.Second // a reaper's calls have no deadline, and what fails is done by the next sweep
	shortestSilence = 500 * time.Millisecond
)

// silence is how long a transaction may be silent: a client gives a statement a TTL, and the half
// of that is enough.
func silence(ctx context.Context) time.Duration {
	deadline, ends := ctx.Deadline()
	if !ends {
		return reapersSilence
	}
	return max(time.Until(deadline)/2, shortestSilence)
}
