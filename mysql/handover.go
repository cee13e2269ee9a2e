package mysql

import (
	"context"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

func (e *engine) Release(ctx context.Context, h driver.Held, contended bool) (next driver.Handoff, err error) {
	if !contended {
		released, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{
			Name: h.Name, Session: h.Session, Token: h.Token,
		})
		if err != nil || released > 0 {
			return driver.Handoff{}, interpret(err)
		}
	}
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		row, there, err := e.lockRow(ctx, q, h.Name, true)
		if err != nil {
			return "", err
		}
		if !there || row.SessionID != h.Session || row.Token != h.Token {
			return "", driver.ErrNotHeld
		}
		next, err = handOver(ctx, q, h.Name, h.Session, row.Waiters)
		return other(next.Session, h.Session), err
	})
	if err != nil {
		return driver.Handoff{}, err
	}
	return next, nil
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) (next driver.Handoff, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there {
			return "", err
		}
		if row.SessionID == session && row.Attempt == attempt {
			next, err = handOver(ctx, q, name, session, row.Waiters)
			return other(next.Session, session), err
		}
		ticket, err := q.FindWaiter(ctx, mysqldb.FindWaiterParams{Attempt: attempt, Name: name})
		if queued, err := found(err); err != nil || !queued {
			return "", err
		}
		if err := q.CountDown(ctx, name); err != nil {
			return "", err
		}
		return "", q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: name, Ticket: ticket})
	})
	if err != nil {
		return driver.Handoff{}, err
	}
	return next, nil
}

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) (next driver.Handoff, taken bool, err error) {
	if holder.Session == "" {
		return e.promote(ctx, self, name)
	}
	if holder.Grant.Lease >= 0 { // not a fixed lease that is over: then it is the session that must be dead
		if dead, err := e.Expire(ctx, holder.Session); err != nil || !dead {
			return driver.Handoff{}, false, err
		}
	}
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there || row.SessionID != holder.Session || row.Token != holder.Grant.Token {
			return "", err
		}
		dead, _, err := lockSession(ctx, q, holder.Session)
		if err != nil {
			return "", err
		}
		if !dead {
			now, err := q.Clock(ctx) // after the locks: a lease is not over before its row was waited for
			if err != nil || !row.ExpiresAt.Valid || row.ExpiresAt.Int64 > now {
				return "", err
			}
		}
		taken = true
		next, err = handOver(ctx, q, name, self, row.Waiters)
		return other(next.Session, self), err
	})
	if err != nil {
		return driver.Handoff{}, false, err
	}
	return next, taken, nil
}

// promote hands on a name that ReleaseTx left free with its queue.
func (e *engine) promote(ctx context.Context, self, name string) (next driver.Handoff, taken bool, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there || row.SessionID != "" || row.Waiters == 0 {
			return "", err
		}
		taken = true
		next, err = handOver(ctx, q, name, self, row.Waiters)
		return other(next.Session, self), err
	})
	if err != nil {
		return driver.Handoff{}, false, err
	}
	return next, taken, nil
}

// handOver gives a locked name to the first waiter whose session lives, or to nobody. The dead before it leave the
// queue. It runs after LockRow, and reads a new snapshot. self needs no notification.
func handOver(ctx context.Context, q *mysqldb.Queries, name, self string, waiters int32) (driver.Handoff, error) {
	for waiters > 0 {
		w, err := q.NextWaiter(ctx, name)
		if there, err := found(err); err != nil {
			return driver.Handoff{}, err
		} else if !there {
			break // somebody deleted rows by hand
		}
		if err := q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: name, Ticket: w.Ticket}); err != nil {
			return driver.Handoff{}, err
		}
		waiters--
		if w.Alive != 0 {
			return give(ctx, q, name, self, w, waiters)
		}
	}
	return driver.Handoff{}, q.FreeLock(ctx, name)
}

func give(ctx context.Context, q *mysqldb.Queries, name, self string, w mysqldb.NextWaiterRow, waiters int32) (driver.Handoff, error) {
	var handed int8
	if w.SessionID != self {
		handed = 1
	}
	fixed := microseconds(w.Lease)
	token, err := q.GiveLock(ctx, mysqldb.GiveLockParams{
		Name: name, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt,
		Lease: lease(fixed), Metadata: w.Metadata, Waiters: waiters, Handed: handed,
	})
	return driver.Handoff{Session: w.SessionID, Attempt: w.Attempt, Grant: driver.Grant{
		Token: token, Contended: waiters > 0, Lease: fixed,
	}}, err
}
