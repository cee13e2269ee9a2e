package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// remakes is how often a take makes a row that is missing: the first time it only makes it, and it
// may be purged at once.
const remakes = 3

var errPurged = driver.Fail(driver.ErrRetry, errors.New("the name's row was purged again and again"))

func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	if r.Units > 0 {
		return e.takeShare(ctx, r)
	}
	return taken(ctx, e.db.exec, query(postgresdb.TakeLock, postgresdb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(), LockTimeout: e.lockTimeoutFor(r.Wait),
	}), r.Lease)
}

// taken runs a take, and again where it has only made the name's row.
func taken(ctx context.Context, run func(context.Context, statement) error, take statement, lease time.Duration) (driver.Grant, bool, error) {
	for range remakes {
		var row postgresdb.TakeLockRow // a TakeShareRow is the same
		var found bool
		if err := run(ctx, take.found(&row, &found)); err != nil || !found {
			return driver.Grant{}, false, pgserver.Interpret(err)
		}
		if !row.Made {
			return driver.Grant{Token: row.Token, Lease: lease}, true, nil
		}
	}
	return driver.Grant{}, false, errPurged
}

// Enqueue never takes the lock itself: a name that is free by now is Gone, and taken by the next
// Take.
func (e *engine) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	var queued bool
	join := e.joinQueue(rs[0], &queued)
	if len(rs) > 1 {
		join = e.joinTogether(rs, &queued)
	}
	err := e.alone(ctx, join)
	switch {
	case err != nil:
		return driver.Grant{}, driver.Gone, pgserver.Interpret(err)
	case queued:
		return driver.Grant{}, driver.Queued, nil
	case rs[0].Units > 0:
		return driver.Grant{}, driver.Gone, e.refuseCapacity(ctx, rs[0])
	}
	return driver.Grant{}, driver.Gone, nil
}

func (e *engine) joinQueue(r driver.Request, queued *bool) statement {
	return query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(), Passable: r.Passable,
		Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: e.lockTimeout,
	}).found(new(postgresdb.JoinQueueRow), queued)
}

func (e *engine) joinTogether(rs []driver.Request, queued *bool) statement {
	wants := make([]want, len(rs))
	for i, r := range rs {
		wants[i] = wanted(i, r)
	}
	return query(postgresdb.JoinTogether, postgresdb.JoinTogetherParams{
		Name: rs[0].Name, Requests: list(wants), LockTimeout: e.lockTimeout,
	}).found(new(postgresdb.JoinTogetherRow), queued)
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var reentered bool
	var row postgresdb.ReenterRow
	q := quarry{Name: r.Name, Host: r.Host, Thread: r.Thread}
	err := e.takeOver(ctx, q, requeueMembers(q), query(postgresdb.Reenter, postgresdb.ReenterParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, MinHold: r.MinHold.Microseconds(),
	}).found(&row, &reentered))
	e.announce(ctx, q, err)
	if err != nil || !reentered {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: row.Token, Contended: row.Waiters > 0, Lease: r.Lease}, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	var name string
	var held bool
	set := query(postgresdb.SetHolds, postgresdb.SetHoldsParams{
		Name: h.Name, Session: h.Session, Token: h.Token, Holds: int32(holds), LockTimeout: e.lockTimeout,
	})
	if h.Shared {
		set = query(postgresdb.SetShareHolds, postgresdb.SetShareHoldsParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Holds: int32(holds), LockTimeout: e.lockTimeout,
		})
	}
	err := e.db.exec(ctx, set.found(&name, &held))
	if err == nil && !held {
		return driver.ErrNotHeld
	}
	return pgserver.Interpret(err)
}

// Extend is a single statement: it decides by the row of the lock, or of the share, alone.
func (e *engine) Extend(ctx context.Context, h driver.Held, d time.Duration) (time.Duration, error) {
	p := postgresdb.ExtendLockParams{
		LockTimeout: e.lockTimeout, Lease: d.Microseconds(), Name: h.Name, Session: h.Session, Token: h.Token,
	}
	extend := query(postgresdb.ExtendLock, p)
	if h.Shared {
		extend = query(postgresdb.ExtendShare, postgresdb.ExtendShareParams(p))
	}
	var row postgresdb.ExtendLockRow // an ExtendShareRow is the same
	var held bool
	err := e.db.exec(ctx, extend.found(&row, &held))
	if err == nil && !held {
		return 0, driver.ErrNotHeld
	}
	return microseconds(row.Remaining), pgserver.Interpret(err)
}

// Raise is a single statement: it decides by the lock row alone.
func (e *engine) Raise(ctx context.Context, h driver.Held, token int64) (int64, error) {
	var row postgresdb.RaiseTokenRow
	var held bool
	err := e.db.exec(ctx, query(postgresdb.RaiseToken, postgresdb.RaiseTokenParams{
		Name: h.Name, Session: h.Session, Token: h.Token, LeastToken: token, LockTimeout: e.lockTimeout,
	}).found(&row, &held))
	if err == nil && !held {
		return 0, driver.ErrNotHeld
	}
	return row.Token, pgserver.Interpret(err)
}

func (e *engine) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	return pgserver.Interpret(e.db.listen(ctx, e.appName(), "dblock_"+session, ready, wake))
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
