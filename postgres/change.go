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

// Change runs a transition once more whose hints the server refused: the queue of notifications was
// full at the COMMIT, though not when the hints were written. Then they are left out. So it does
// where the sequence of the events' ids is behind: then it is not asked.
func (e *engine) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	addEvent := postgresdb.AddEvent
	for try := 0; ; try++ {
		next, err := e.changeOnce(ctx, how, addEvent, transition)
		switch state := pgserver.State(err); {
		case state == pgserver.LimitExceeded && try == 0:
		case state == pgserver.UniqueViolation && try < aheads:
			addEvent = postgresdb.AddEventAhead
		default:
			return next, err
		}
	}
}

// changeOnce is two round trips over pgx, and one more for each thing that the transition reads
// beside the first page of the queue. In between the server ends the transaction if the process
// falls silent: the name's row does not stay locked.
func (e *engine) changeOnce(ctx context.Context, how driver.How, addEvent string, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	for try := range remakes {
		next, there, err := e.change(ctx, how, try > 0, addEvent, transition)
		if err != nil || there || !how.Make {
			return next, err
		}
	}
	return nil, errPurged
}

// change is Change, unless a missing row is to be made: then it does nothing, and is to be called
// again with make.
func (e *engine) change(ctx context.Context, how driver.How, make bool, addEvent string, transition func(n *protocol.Name) error) (next []driver.Handoff, there bool, err error) {
	s := &source{ctx: ctx, name: how.Name}
	timeout := e.lockTimeoutFor(how.Wait)
	statements := s.open(query(postgresdb.LockName, postgresdb.LockNameParams{
		Name: how.Name, LockTimeout: timeout, Silence: milliseconds(silence(ctx)),
	}))
	if make {
		statements = append([]statement{
			query(postgresdb.SetLockTimeout, timeout), query(postgresdb.EnsureRow, how.Name),
		}, statements...)
	}
	tx, err := e.db.begin(ctx, statements...)
	if err != nil {
		return nil, false, pgserver.Interpret(err)
	}
	if !s.locked && how.Make {
		tx.rollback(ctx)
		return nil, false, nil
	}
	s.tx = tx
	if !s.locked {
		err = s.exec(query(postgresdb.Now, struct{}{}).into(&s.row.Now, func() {}))
	}
	n := s.read()
	if err == nil {
		err = transition(n)
	}
	if err != nil {
		tx.rollback(ctx)
		e.refused(ctx, s)
		return nil, s.locked, err
	}
	var writes []statement
	if s.locked {
		writes = append(write(n, addEvent), tell(n, reversible(s.before, n)))
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return nil, s.locked, pgserver.Interpret(err)
	}
	return n.Handoffs, s.locked, nil
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
