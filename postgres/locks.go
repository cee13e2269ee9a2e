package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Take is one statement.
func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
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
			return driver.Grant{}, false, pgserver.Interpret(err)
		}
		if !row.Made {
			return driver.Grant{First: row.Token - int64(members(r)-1), Token: row.Token, Lease: r.Lease}, true, nil
		}
	}
	return driver.Grant{}, false, errPurged
}

// members are those of a request; the share of a name has one.
func members(r driver.Request) int { return max(r.Members, 1) }

// Join is one statement where the name cannot be had at once, and a second one where it can. What
// both leave is that other requests came in between, or that the request collides with them.
func (e *engine) Join(ctx context.Context, r driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	var queued bool
	err = pgserver.Interpret(e.alone(ctx, e.joinQueue(r, &queued)))
	if err != nil || queued {
		return driver.Grant{}, driver.Queued, err
	}
	if grant, taken, err := e.Take(ctx, r); err != nil || taken {
		return grant, driver.Granted, err
	}
	_, err = e.Change(ctx, driver.How{Name: r.Name, Self: r.Session, Make: true, Wait: r.Wait}, func(n *protocol.Name) (err error) {
		grant, outcome, err = protocol.Join(n, r)
		return err
	})
	return grant, outcome, err
}

func (e *engine) joinQueue(r driver.Request, queued *bool) statement {
	return query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Members: int32(members(r)),
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(),
		Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: e.lockTimeoutFor(r.Wait),
	}).found(new(postgresdb.JoinQueueRow), queued)
}

// Remove returns no grants with an error: rows that told of them may have come before a COMMIT that
// failed.
func (e *engine) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	if r.Cause == driver.ByHolder && !r.Shared && !r.Guarded {
		if next, left, err = e.release(ctx, r); err != nil || left {
			return next, left, err
		}
	}
	next, err = e.Change(ctx, driver.How{Name: r.Name, Self: r.Self, Wait: true}, func(n *protocol.Name) (err error) {
		left, err = protocol.Remove(n, r)
		return err
	})
	return next, left && err == nil, err
}

// release releases a whole name in the common cases: in one statement where nobody waits, and in
// one round trip to a head of the queue that lives and wants the whole name, too. It does nothing
// in any other case.
func (e *engine) release(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	if !r.Contended {
		err := e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: r.Name, Session: r.Session, Token: r.Token, LockTimeout: e.lockTimeout,
		}).found(new(postgresdb.ReleaseIdleRow), &left))
		if err != nil || left {
			return nil, left, pgserver.Interpret(err)
		}
	}
	err = e.db.transact(ctx,
		query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{LockTimeout: e.lockTimeout, Name: r.Name}),
		handToHead(r, &next),
	)
	if pgserver.State(err) == pgserver.LimitExceeded { // of notifications: Change is for that
		return nil, false, nil
	}
	if err != nil {
		return nil, false, pgserver.Interpret(err)
	}
	return next, len(next) > 0, nil
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
