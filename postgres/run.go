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

// Run implements driver.Names. The comment of each short way counts its round trips over pgx, and
// those of general.
func (e *engine) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if len(ops) != 1 {
		return e.batch(ctx, ops)
	}
	var result protocol.Result
	var done bool
	var err error
	switch op := ops[0].(type) {
	case protocol.Take: // 1, general 2; for a name without a row 2, general 5
		result, done, err = e.take(ctx, op.Request)
	case protocol.Join: // 1 for a place, 2 for a grant, general 2
		result, done, err = e.join(ctx, op)
	case protocol.Removal:
		if op.Cause == protocol.ByHolder && !op.Shared && !op.Guarded { // 1, general 2 or 3
			result, done, err = e.release(ctx, op)
		}
	}
	if err == nil && !done {
		result, err = e.general(ctx, ops[0])
	}
	if err != nil {
		return nil, err
	}
	return []protocol.Result{result}, nil
}

// remakes bounds the attempts to make the row of a name: another transaction may purge it at once.
const remakes = 4

// errPurged is no lost race: what makes or deletes the rows of a name is not as the migrations have
// made it. It counts as refused, since the transaction had no effect.
var errPurged = driver.Refused(driver.Fail(driver.ErrUnavailable, errors.New(
	"the row of the name is missing each time that it was made: look for triggers, rules and changed functions of "+
		"dblock's tables (dblock doctor)")))

// general runs an op in a transaction of its own: it locks the name's row, runs the op, and writes
// the changes. That takes two round trips over pgx, one more for each read beyond the first page of
// the queue, and more for a missing row.
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
		// the sequence of event ids is behind
		case state == pgserver.UniqueViolation && try < aheads:
			addEvent = postgresdb.AddEventAhead
		default:
			return result, err
		}
	}
}

// transition makes one attempt of general. If the op changes a row that is missing, transition
// returns errPurged without effect. While the op runs, the server ends the transaction if the
// process falls silent, so the name's row does not stay locked.
func (e *engine) transition(ctx context.Context, op protocol.Op, makes bool, addEvent string) (protocol.Result, error) {
	s := &source{ctx: ctx, name: op.On()}
	timeout := e.lockTimeoutFor(protocol.Waits(op))
	statements := s.open(query(postgresdb.LockName, postgresdb.LockNameParams{
		Name: op.On(), LockTimeout: timeout, Silence: milliseconds(silence(ctx)),
	}), op)
	if makes {
		statements = append([]statement{
			query(postgresdb.SetLockTimeout, timeout), ensureRow(op.On()),
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
		result, err = op.Apply(n)
	}
	if err == nil && !s.locked && n.Written() {
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

// ensureRow makes the row of a name.
func ensureRow(name string) statement {
	return query(postgresdb.EnsureRow, name).inTurn(new(struct{ Busy bool }), func() {})
}

// refused records, after a guard has refused a takeover, that the session is dead or that a
// takeover is wanted: either keeps new guards of the hold from beginning. Errors are ignored, since
// the next attempt of the takeover records it again.
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
	// reapersSilence is for a reaper's calls, which have no deadline; the next sweep repeats
	// failures.
	reapersSilence  = 2 * time.Second
	shortestSilence = 500 * time.Millisecond
)

// silence returns the time for which a transaction may be silent: half of a statement's time, which
// is a TTL.
func silence(ctx context.Context) time.Duration {
	deadline, ends := ctx.Deadline()
	if !ends {
		return reapersSilence
	}
	return max(time.Until(deadline)/2, shortestSilence)
}
