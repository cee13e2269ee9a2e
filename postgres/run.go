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

// Run is as of driver.Names.
func (e *engine) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if len(ops) != 1 {
		return e.batch(ctx, ops)
	}
	result, done, err := e.short(ctx, ops[0])
	if err == nil && !done {
		result, err = e.general(ctx, ops[0])
	}
	if err != nil {
		return nil, err
	}
	return []protocol.Result{result}, nil
}

// remakes limits how often the row of a name is made: another transaction may purge it at once.
const remakes = 2

var errPurged = driver.Fail(driver.ErrRetry, errors.New("the name's row was purged again and again"))

// general runs an op in a transaction of its own: it locks the name's row, runs the op, and writes
// the changes. That is two round trips over pgx, one more for each thing that the op reads beside
// the first page of the queue, and more for a row that is missing.
func (e *engine) general(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	addEvent, makes, full := postgresdb.AddEvent, false, false
	for try := 0; ; try++ {
		result, err := e.transition(ctx, op, makes, addEvent)
		switch state := pgserver.State(err); {
		case errors.Is(err, errPurged) && try < remakes:
			makes = true
		case state == pgserver.LimitExceeded && !full:
			// The queue of notifications was full at the COMMIT, though not when the hints were
			// written. Tell leaves them out now.
			full = true
		case state == pgserver.UniqueViolation && try < aheads: // the sequence of events' ids is behind
			addEvent = postgresdb.AddEventAhead
		default:
			return result, err
		}
	}
}

// transition makes one try of general. It returns errPurged, and has done nothing, if the op leaves
// something in a row that is missing. While the op runs, the server ends the transaction if the
// process falls silent: the name's row does not stay locked.
func (e *engine) transition(ctx context.Context, op protocol.Op, makes bool, addEvent string) (protocol.Result, error) {
	s := &source{ctx: ctx, name: op.On()}
	timeout := e.lockTimeoutFor(protocol.Waits(op))
	statements := s.open(query(postgresdb.LockName, postgresdb.LockNameParams{
		Name: op.On(), LockTimeout: timeout, Silence: milliseconds(silence(ctx)),
	}))
	if makes {
		statements = append([]statement{
			query(postgresdb.SetLockTimeout, timeout), query(postgresdb.EnsureRow, op.On()),
		}, statements...)
	}
	tx, err := e.db.begin(ctx, statements...)
	if err != nil {
		return protocol.Result{}, pgserver.Interpret(err)
	}
	s.tx = tx
	if !s.locked {
		err = s.exec(query(postgresdb.Now, struct{}{}).into(&s.row.Now, func() {}))
	}
	n := s.read()
	var result protocol.Result
	if err == nil {
		result, err = op.Run(n)
	}
	if err == nil && !s.locked && n.Changed() {
		err = errPurged
	}
	if err != nil {
		tx.rollback(ctx)
		e.refused(ctx, s)
		return protocol.Result{}, err
	}
	var writes []statement
	if s.locked {
		writes = append(write(n, addEvent), tell(n, reversible(s.before, n)))
	}
	if err := tx.commit(ctx, writes...); err != nil {
		return protocol.Result{}, pgserver.Interpret(err)
	}
	return result, nil
}

// refused writes what keeps new guards of a hold from beginning, after a guard has refused a
// takeover: that the session is dead, or that a takeover is wanted. An error is ignored: the next
// try of the takeover writes it again.
func (e *engine) refused(ctx context.Context, s *source) {
	if s.expired != "" {
		_, _ = e.Expire(ctx, s.expired)
	}
	if s.wanted != "" {
		_ = e.db.exec(ctx, query(postgresdb.WantHold, postgresdb.WantHoldParams{Attempt: s.wanted,
			Announced: announced.Microseconds()}))
	}
}

const (
	reapersSilence  = 2 * time.Second // a reaper's calls have no deadline, and the next sweep repeats what fails
	shortestSilence = 500 * time.Millisecond
)

// silence is how long a transaction may be silent: half of a statement's time, which is a TTL.
func silence(ctx context.Context) time.Duration {
	deadline, ends := ctx.Deadline()
	if !ends {
		return reapersSilence
	}
	return max(time.Until(deadline)/2, shortestSilence)
}
