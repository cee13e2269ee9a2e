package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/queue"
)

// Take looks only where it took nothing, for what was in the way: the row is missing, or locked for
// the moment, or not free. Units are more than the lock's row, and a transaction.
func (e *engine) Take(ctx context.Context, r driver.Request) (grant driver.Grant, taken bool, err error) {
	if r.Units > 0 {
		err = e.transactAt(ctx, r.Name, func(q *mysqldb.Queries) (_ []string, err error) {
			grant, taken, err = e.takeNext(ctx, q, r)
			return nil, err
		})
		if err != nil || !taken {
			return driver.Grant{}, false, err
		}
		return grant, true, nil
	}
	if grant, taken, err = e.takeAlone(ctx, r); taken || err != nil {
		return grant, taken, mysqlserver.Interpret(err)
	}
	row, there, err := e.lockRow(ctx, e.queries(), r.Name, r.Wait)
	if err == nil && !there {
		err = e.queries().MakeRow(ctx, r.Name)
	}
	if err != nil || there && !standing(row).Free(r) {
		return driver.Grant{}, false, mysqlserver.Interpret(err)
	}
	grant, taken, err = e.takeAlone(ctx, r)
	return grant, taken, mysqlserver.Interpret(err)
}

// takeAlone takes a whole name that is free, unless it rests, or another has its row locked.
func (e *engine) takeAlone(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	if f := e.facts.Load(); f != nil && f.mariaDB {
		grant, taken, err := take(ctx, mysqldb.New(nowait{e.prepared}), r)
		if mysqlserver.Number(err) == mysqlserver.LockWaitTimeout {
			err = nil
		}
		return grant, taken, err
	}
	token, err := e.queries().TakeLock(ctx, mysqldb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
	})
	return took(token, r, err)
}

// nowait has statements that do not wait for rows, on MariaDB: to MySQL the words are a comment.
type nowait struct{ mysqldb.DBTX }

func (n nowait) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return n.DBTX.ExecContext(ctx, "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ "+text, args...)
}

// takeNext takes a name in a transaction, if it is free, and makes its row where there is none.
func (e *engine) takeNext(ctx context.Context, q *mysqldb.Queries, r driver.Request) (driver.Grant, bool, error) {
	row, there, err := e.lockRow(ctx, q, r.Name, r.Wait)
	if err == nil && !there {
		if err := q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: r.Name, Keep: 0}); err != nil {
			return driver.Grant{}, false, err
		}
		row, there, err = e.lockRow(ctx, q, r.Name, r.Wait)
	}
	if err == nil {
		err = restate(ctx, q, r.Name, &row)
	}
	if err != nil || !there || !standing(row).Free(r) {
		return driver.Grant{}, false, err
	}
	return takeLocked(ctx, q, row, r)
}

// takeLocked takes a locked name that is free, unless it rests.
func takeLocked(ctx context.Context, q *mysqldb.Queries, row mysqldb.LockRowRow, r driver.Request) (driver.Grant, bool, error) {
	if r.Units > 0 {
		return lend(ctx, q, row, r)
	}
	return take(ctx, q, r)
}

// take takes a whole name that is free, unless it rests. If another has its row locked, it waits.
func take(ctx context.Context, q *mysqldb.Queries, r driver.Request) (driver.Grant, bool, error) {
	token, err := q.TakeRow(ctx, mysqldb.TakeRowParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
	})
	return took(token, r, err)
}

// took is what came of a statement that returns 0 where it took nothing.
func took(token int64, r driver.Request, err error) (driver.Grant, bool, error) {
	if err != nil || token == 0 {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, nil
}

// standing is what decides about a name. Whether it rests is for the statement that takes it: only
// there is a time.
func standing(row mysqldb.LockRowRow) queue.State {
	return queue.State{
		Held: row.SessionID != "", Used: int(row.SharedUnits), Capacity: int(row.Capacity), Mixed: row.Mixed, Waiters: int(row.Waiters),
	}
}

func (e *engine) Enqueue(ctx context.Context, rs ...driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	switch joined, err := e.joinQueue(ctx, rs); {
	case err != nil:
		return driver.Grant{}, driver.Gone, err
	case joined:
		return driver.Grant{}, driver.Queued, nil
	}
	name := rs[0].Name
	err = e.transactAtWith(ctx, name, func(db mysqldb.DBTX) ([]string, error) {
		q, joining := mysqldb.New(db), rs
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there {
			return nil, err
		}
		if err := restate(ctx, q, name, &row); err != nil {
			return nil, err
		}
		capacity, err := capacityWith(row, rs[0])
		if err != nil {
			return nil, err
		}
		outcome = driver.Queued
		if standing(row).Free(rs[0]) {
			var taken bool
			if grant, taken, err = takeLocked(ctx, q, row, rs[0]); err != nil {
				return nil, err
			}
			if taken {
				outcome, joining = driver.Granted, rs[1:]
				grant.Contended = len(joining) > 0
			}
		}
		if len(joining) == 0 {
			return nil, nil
		}
		first, err := q.TakeTickets(ctx, mysqldb.TakeTicketsParams{Name: name, Places: int64(len(joining)), Capacity: capacity})
		if err != nil {
			return nil, err
		}
		return nil, addPlaces(ctx, db, first, joining)
	})
	if err != nil {
		return driver.Grant{}, driver.Gone, err
	}
	return grant, outcome, nil
}

// capacityWith is a name's capacity when a request joins its queue.
func capacityWith(row mysqldb.LockRowRow, r driver.Request) (int32, error) {
	capacity, collides := standing(row).Join(r)
	if !collides {
		return int32(capacity), nil
	}
	return 0, driver.Fail(driver.ErrCapacity, fmt.Errorf("%q has %d units, the request is for one of %d: readers and permits do not share a name", r.Name, capacity, r.Of))
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (grant driver.Grant, reentered bool, err error) {
	var old string
	err = e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) {
		q := mysqldb.New(db)
		row, there, err := e.lockRow(ctx, q, r.Name, true)
		if err != nil || !there || row.SessionID == "" || row.Host != r.Host || row.Thread != r.Thread {
			return nil, err
		}
		old = row.Attempt
		take, err := pass(ctx, q, old)
		if err != nil {
			return nil, err
		}
		if err := take(); err != nil {
			return nil, err
		}
		if err := endRun(ctx, db, r.Name, &row, false); err != nil {
			return nil, err
		}
		token, err := q.GiveLock(ctx, mysqldb.GiveLockParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata), Waiters: row.Waiters,
		})
		grant = driver.Grant{Token: token, Contended: row.Waiters > 0, Lease: r.Lease}
		reentered = true
		return others(r.Session, row.SessionID), err // the old incarnation is told
	})
	e.announce(ctx, old, err)
	if err != nil || !reentered {
		return driver.Grant{}, false, err
	}
	return grant, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	if h.Shared {
		return e.setShareHolds(ctx, h, holds)
	}
	return e.transactAt(ctx, h.Name, func(q *mysqldb.Queries) ([]string, error) {
		if _, there, err := e.lockRow(ctx, q, h.Name, true); err != nil || !there {
			return nil, notHeld(err)
		}
		held, err := q.SetHolds(ctx, mysqldb.SetHoldsParams{Name: h.Name, Session: h.Session, Token: h.Token, Holds: int64(holds)})
		if err != nil || held == 0 {
			return nil, notHeld(err)
		}
		return nil, nil
	})
}

func (e *engine) Raise(ctx context.Context, h driver.Held, token int64) (raised int64, err error) {
	err = e.transactAt(ctx, h.Name, func(q *mysqldb.Queries) ([]string, error) {
		if _, there, err := e.lockRow(ctx, q, h.Name, true); err != nil || !there {
			return nil, notHeld(err)
		}
		raised, err = q.RaiseToken(ctx, mysqldb.RaiseTokenParams{Name: h.Name, Session: h.Session, Token: h.Token, Least: token})
		if err != nil || raised == 0 {
			return nil, notHeld(err)
		}
		return nil, nil
	})
	if err != nil {
		return 0, err
	}
	return raised, nil
}

// lockRow locks a name's row. Without one it locks nothing, at READ COMMITTED. A row that is locked
// it asks for again and again, for as long as a transaction of dblock's own may take: ErrBusy.
// Without wait it does so just long enough for most of them.
func (e *engine) lockRow(ctx context.Context, q *mysqldb.Queries, name string, wait bool) (mysqldb.LockRowRow, bool, error) {
	timeout := e.rowTimeout
	if !wait {
		timeout /= 5
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
		if time.Since(began) > timeout {
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

// lockSession locks a session's row, and is ErrBusy where another is ending it.
func lockSession(ctx context.Context, q *mysqldb.Queries, session string) (dead, there bool, err error) {
	dead, err = q.LockSession(ctx, session)
	there, err = granted(err)
	return dead, there, err
}

// granted is found for a statement with NOWAIT. MariaDB's answer to that is a lock wait timeout:
// only the statement tells them apart.
func granted(err error) (bool, error) {
	if n := mysqlserver.Number(err); n == mysqlserver.LockNoWait || n == mysqlserver.LockWaitTimeout {
		return false, driver.Fail(driver.ErrBusy, err)
	}
	return found(err)
}

// found tells a row that is missing from a failure.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// others are the sessions that a change concerns, without the one that makes it, which knows.
func others(self string, sessions ...string) []string {
	return slices.DeleteFunc(sessions, func(s string) bool { return s == self })
}

func lease(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: d.Microseconds(), Valid: d > 0}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
