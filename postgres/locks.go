package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run takes the short way where there is one. The general way is for what the short way leaves.
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

// short does an op in fewer statements than general, or nothing.
func (e *engine) short(ctx context.Context, op protocol.Op) (result protocol.Result, done bool, err error) {
	switch op := op.(type) {
	case protocol.Take:
		result, err = e.take(ctx, op.Request)
		return result, true, err
	case protocol.Join:
		result, err = e.join(ctx, op.Request)
	case protocol.Removal:
		if op.Cause == driver.ByHolder && !op.Shared && !op.Guarded {
			result, err = e.release(ctx, op)
		}
	}
	return result, result.Outcome != protocol.Undone, err
}

// take is one statement.
func (e *engine) take(ctx context.Context, r driver.Request) (protocol.Result, error) {
	run := e.db.exec
	take := query(postgresdb.TakeLock, postgresdb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, More: int64(members(r) - 1),
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(), LockTimeout: e.lockTimeoutFor(r.Wait),
	})
	if r.Units > 0 {
		run = e.alone
		take = query(postgresdb.TakeShare, postgresdb.TakeShareParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: e.lockTimeoutFor(r.Wait),
		})
	}
	for range remakes { // the first time it only makes a row that is missing
		var row postgresdb.TakeLockRow // a TakeShareRow is the same
		var found bool
		if err := run(ctx, take.found(&row, &found)); err != nil || !found {
			return protocol.Result{}, pgserver.Interpret(err)
		}
		if !row.Made {
			grant := driver.Grant{First: row.Token - int64(members(r)-1), Token: row.Token, Lease: r.Lease}
			return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
		}
	}
	return protocol.Result{}, errPurged
}

// members are those of a request; the share of a name has one.
func members(r driver.Request) int { return max(r.Members, 1) }

// join is one statement where the name cannot be had at once, and a second one where it can. Both
// do nothing where other requests came in between, or where the request collides with them.
func (e *engine) join(ctx context.Context, r driver.Request) (protocol.Result, error) {
	var queued bool
	if err := e.alone(ctx, e.joinQueue(r, &queued)); err != nil {
		return protocol.Result{}, pgserver.Interpret(err)
	}
	if queued {
		return protocol.Result{Outcome: protocol.Queued}, nil
	}
	return e.take(ctx, r)
}

func (e *engine) joinQueue(r driver.Request, queued *bool) statement {
	return query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Members: int32(members(r)),
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(),
		Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: e.lockTimeoutFor(r.Wait),
	}).found(new(postgresdb.JoinQueueRow), queued)
}

// release releases a whole name in the common cases: in one statement where nobody waits, and in
// one round trip to a head of the queue that lives and wants the whole name, too. It does nothing
// in any other case.
func (e *engine) release(ctx context.Context, r driver.Removal) (protocol.Result, error) {
	if !r.Contended {
		var left bool
		err := e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: r.Name, Session: r.Session, Token: r.Token, LockTimeout: e.lockTimeout,
		}).found(new(postgresdb.ReleaseIdleRow), &left))
		if err != nil {
			return protocol.Result{}, pgserver.Interpret(err)
		}
		if left {
			return protocol.Result{Outcome: protocol.Done}, nil
		}
	}
	var next []driver.Handoff
	err := e.db.transact(ctx,
		query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{LockTimeout: e.lockTimeout, Name: r.Name}),
		handToHead(r, &next),
	)
	switch { // with an error no grant counts: rows that told of it may have come before a COMMIT that failed
	case pgserver.State(err) == pgserver.LimitExceeded: // of notifications: general is for that
		return protocol.Result{}, nil
	case err != nil:
		return protocol.Result{}, pgserver.Interpret(err)
	case len(next) == 0:
		return protocol.Result{}, nil
	}
	return protocol.Result{Outcome: protocol.Done, Next: next}, nil
}

// handToHead gives up a whole name, and hands it to the head of the queue, or does nothing.
func handToHead(r driver.Removal, next *[]driver.Handoff) statement {
	var row postgresdb.HandToHeadRow
	return query(postgresdb.HandToHead, postgresdb.HandToHeadParams{
		Name: r.Name, Session: r.Session, Token: r.Token, Self: r.Self,
	}).into(&row, func() {
		*next = []driver.Handoff{{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
			First: row.FirstToken, Token: row.LastToken, Contended: row.Waiters > 0,
		}}}
	})
}
