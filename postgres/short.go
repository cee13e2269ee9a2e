package postgres

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// The short ways run an op in half of the round trips of general, or fewer, or do nothing: done is
// false.

// take takes a free name, or units of it, in one statement, or reports that the name is not free.
// It does nothing (done is false) if others have the row locked.
func (e *engine) take(ctx context.Context, r protocol.Request) (result protocol.Result, done bool, err error) {
	run, more := e.db.exec, int64(max(r.Members, 1)-1)
	take := query(postgresdb.TakeLock, postgresdb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, More: more,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(),
		LockTimeout: e.lockTimeoutFor(r.Patient),
	})
	if r.Units > 0 {
		run = e.oneStatement
		take = query(postgresdb.TakeShare, postgresdb.TakeShareParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Units: int32(r.Units), Capacity: int32(r.Of),
			LockTimeout: e.lockTimeoutFor(r.Patient),
		})
	}
	for try := 0; ; try++ {
		var row postgresdb.TakeLockRow // a TakeShareRow is the same
		switch err := run(ctx, take.into(&row, func() {})); {
		case err != nil:
			return protocol.Result{}, false, pgserver.Interpret(err)
		case row.Token > 0:
			grant := protocol.Grant{First: row.Token - more, Token: row.Token, Lease: r.Lease}
			return protocol.Result{Outcome: protocol.Done, Grant: grant}, true, nil
		case row.Busy:
			return protocol.Result{}, false, nil
		case !row.Again: // the name is not free
			return protocol.Result{}, true, nil
		case try == remakes:
			return protocol.Result{}, false, errPurged
		}
	}
}

// join is one statement if the name is not available, and a second one if it is. Both do nothing if
// other requests came in between, or if the request conflicts with them.
func (e *engine) join(ctx context.Context, j protocol.Join) (result protocol.Result, done bool, err error) {
	r := j.Request
	var row postgresdb.JoinQueueRow
	join := query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Members: int32(max(r.Members, 1)), Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		MinHold: r.MinHold.Microseconds(), Units: int32(r.Units), Capacity: int32(r.Of),
		LockTimeout: e.lockTimeoutFor(r.Patient), Extends: j.Extends, Most: protocol.MaxMembers,
	}).inTurn(&row, func() {})
	switch err := e.oneStatement(ctx, join); {
	case err != nil:
		return protocol.Result{}, false, pgserver.Interpret(err)
	case row.Queued:
		return protocol.Result{Outcome: protocol.Queued, Ahead: int(row.Ahead)}, true, nil
	}
	result, _, err = e.take(ctx, r)
	return result, result.Outcome != protocol.Undone, err
}

// release releases a whole name without waiters, or hands it to the first waiter if that waiter is
// alive and wants the whole name. Otherwise it does nothing.
func (e *engine) release(ctx context.Context, r protocol.Removal) (result protocol.Result, done bool, err error) {
	if !r.Contended {
		var left bool
		err = e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: r.Name, Session: r.Session, Token: r.Token,
		}).found(new(postgresdb.ReleaseIdleRow), &left))
		if err != nil {
			return result, false, pgserver.Interpret(err)
		}
		if left {
			return protocol.Result{Outcome: protocol.Done}, true, nil
		}
	}
	var row postgresdb.LockRowWithinRow
	var next []protocol.Handoff
	err = e.db.transact(ctx,
		lockRowWithin(e.lockTimeout, r.Name, &row),
		handToHead(r, &next),
	)
	switch {
	case pgserver.State(err) == pgserver.LimitExceeded: // of notifications: general leaves them out
		return result, false, nil
	case err != nil: // no grant counts: its row may precede a COMMIT that failed
		return result, false, pgserver.Interpret(err)
	case len(next) > 0:
		return protocol.Result{Outcome: protocol.Done, Next: next}, true, nil
	case row.Busy:
		return result, false, pgserver.Interpret(errOccupied)
	}
	return result, false, nil
}

// lockRowWithin locks the row of a name for the statements behind it. Those are sent, and run, also
// if others keep the row locked (row.Busy): each then does nothing, or finds the row free.
func lockRowWithin(timeout, name string, row *postgresdb.LockRowWithinRow) statement {
	return query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{LockTimeout: timeout, Name: name}).
		into(row, func() {})
}

// handToHead releases a whole name, and hands it to the first waiter, or does nothing.
func handToHead(r protocol.Removal, next *[]protocol.Handoff) statement {
	var row postgresdb.HandToHeadRow
	return query(postgresdb.HandToHead, postgresdb.HandToHeadParams{
		Name: r.Name, Session: r.Session, Token: r.Token, Self: r.Self,
	}).into(&row, func() {
		*next = []protocol.Handoff{{Session: row.Session, Attempt: row.Attempt, Grant: protocol.Grant{
			First: row.FirstToken, Token: row.LastToken, Contended: row.Waiters > 0,
		}}}
	})
}

// batched is a request or a release in the form that BatchRows reads.
type batched struct {
	Order                                          int
	Token                                          int64 // of a release
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease                                          int64
}

// batch runs several ops in one round trip. Separately each op would take one.
func (e *engine) batch(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	results := make([]protocol.Result, len(ops))
	var changes []batched
	var names []string
	for i, op := range ops {
		switch op := op.(type) {
		case protocol.Take:
			names = append(names, op.Name)
			changes = append(changes, batched{
				Order: i, Name: op.Name, Session: op.Session, Host: op.Host, Thread: op.Thread, Attempt: op.Attempt,
				Metadata: op.Metadata, Lease: op.Lease.Microseconds(),
			})
		case protocol.Removal:
			if op.Cause == protocol.ByHolder && !op.Guarded {
				changes = append(changes, batched{Order: i, Token: op.Token, Name: op.Name, Session: op.Session})
			}
		}
	}
	var row postgresdb.BatchRowsRow
	statements := []statement{query(postgresdb.BatchRows, list(changes)).into(&row, func() {
		result := &results[row.Nth]
		result.Outcome = protocol.Done
		if take, takes := ops[row.Nth].(protocol.Take); takes {
			result.Grant = protocol.Grant{First: row.Token, Token: row.Token, Lease: take.Lease}
		}
	})}
	if len(names) > 0 {
		statements = slices.Insert(statements, 0,
			query(postgresdb.SetLockTimeout, e.lockTimeout), query(postgresdb.EnsureRows, list(names)))
	}
	if err := e.db.transact(ctx, statements...); err != nil {
		return nil, pgserver.Interpret(err)
	}
	return results, nil
}
