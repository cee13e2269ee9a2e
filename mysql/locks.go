package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	token, err := e.queries().TakeLock(ctx, mysqldb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: lease(r.Lease), Metadata: r.Metadata,
	})
	if err != nil || token == 0 {
		return driver.Grant{}, false, interpret(err)
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, nil
}

func (e *engine) Enqueue(ctx context.Context, r driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		ticket, err := q.JoinQueue(ctx, r.Name)
		if err != nil {
			return "", err
		}
		if ticket > 0 {
			outcome = driver.Queued
			return "", q.AddWaiter(ctx, mysqldb.AddWaiterParams{
				Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
				Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
			})
		}
		token, err := q.TakeLocked(ctx, mysqldb.TakeLockedParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: lease(r.Lease), Metadata: r.Metadata,
		})
		if token > 0 {
			grant, outcome = driver.Grant{Token: token, Lease: r.Lease}, driver.Granted
		}
		return "", err
	})
	if err != nil {
		return driver.Grant{}, driver.Gone, err
	}
	return grant, outcome, nil
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (grant driver.Grant, reentered bool, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) (string, error) {
		row, there, err := lockRow(ctx, q, r.Name)
		if err != nil || !there || row.SessionID == "" || row.Host != r.Host || row.Thread != r.Thread {
			return "", err
		}
		if _, _, err := lockSession(ctx, q, row.SessionID); err != nil {
			return "", err
		}
		token, err := q.GiveLock(ctx, mysqldb.GiveLockParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: lease(r.Lease), Metadata: r.Metadata, Waiters: row.Waiters,
		})
		grant = driver.Grant{Token: token, Contended: row.Waiters > 0, Lease: r.Lease}
		reentered = true
		return other(row.SessionID, r.Session), err // the old incarnation is told
	})
	if err != nil || !reentered {
		return driver.Grant{}, false, err
	}
	return grant, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	held, err := e.queries().SetHolds(ctx, mysqldb.SetHoldsParams{
		Name: h.Name, Session: h.Session, Token: h.Token, Holds: int64(holds),
	})
	if err == nil && held == 0 {
		return driver.ErrNotHeld
	}
	return interpret(err)
}

// lockRow locks a name's row. Without one it locks nothing, at READ COMMITTED.
func lockRow(ctx context.Context, q *mysqldb.Queries, name string) (mysqldb.LockRowRow, bool, error) {
	row, err := q.LockRow(ctx, name)
	there, err := found(err)
	return row, there, err
}

// lockSession locks a session's row, and is ErrBusy where a guarded transaction holds it. MariaDB's answer to NOWAIT
// is a lock wait timeout: only the statement tells them apart.
func lockSession(ctx context.Context, q *mysqldb.Queries, session string) (dead, there bool, err error) {
	dead, err = q.LockSession(ctx, session)
	if n := number(err); n == lockNoWait || n == lockWaitTimeout {
		return false, false, driver.Fail(driver.ErrBusy, err)
	}
	there, err = found(err)
	return dead, there, err
}

// found tells a row that is missing from a failure.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// other is the session that a grant concerns, unless it is the one that makes it, which knows.
func other(session, self string) string {
	if session == self {
		return ""
	}
	return session
}

func lease(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: d.Microseconds(), Valid: d > 0}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
