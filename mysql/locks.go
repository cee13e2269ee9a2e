package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// Take looks first, for a row that is locked or not free: an upsert would wait for the one, and write for the other. In
// the moment in between somebody else's transaction may still lock the row; then the upsert does wait for it.
func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	row, there, err := e.lockRow(ctx, e.queries(), r.Name, r.Wait)
	if err != nil || there && (row.SessionID != "" || row.Waiters > 0) {
		return driver.Grant{}, false, interpret(err)
	}
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
		if _, there, err := e.lockRow(ctx, q, r.Name, true); err != nil || !there {
			return "", err
		}
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
		row, there, err := e.lockRow(ctx, q, r.Name, true)
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

// lockRow locks a name's row. Without one it locks nothing, at READ COMMITTED. A row that is locked it asks for again
// and again, for as long as a transaction of dblock's own may take: ErrBusy. Without wait it does so just long enough for
// most of them.
func (e *engine) lockRow(ctx context.Context, q *mysqldb.Queries, name string, wait bool) (mysqldb.LockRowRow, bool, error) {
	patience := e.patience
	if !wait {
		patience /= 5
	}
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		row, err := q.LockRow(ctx, name)
		if there, err := found(err); there || err != nil {
			return row, there, err
		}
		_, err = q.RowExists(ctx, name)
		if there, err := found(err); !there || err != nil {
			return row, false, err
		}
		if e.obstructed != nil {
			e.obstructed()
		}
		if time.Since(began) > patience {
			return row, false, driver.Fail(driver.ErrBusy, fmt.Errorf("the row of %q is locked", name))
		}
		if err := sleep(ctx, pause); err != nil {
			return row, false, err
		}
	}
}

// sleep waits for about as long as said, or until ctx ends: then it returns the context's error.
func sleep(ctx context.Context, about time.Duration) error {
	timer := time.NewTimer(about/2 + rand.N(about))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
