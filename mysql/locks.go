package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Take looks only where it took nothing, for what was in the way: the row is missing, or locked for
// the moment, or not free. Units are more than the lock's row, a cohort has several tokens: these
// are a transaction.
func (e *engine) Take(ctx context.Context, r driver.Request) (grant driver.Grant, taken bool, err error) {
	if r.Units > 0 || r.Members > 1 {
		_, err = e.Change(ctx, driver.How{Name: r.Name, Self: r.Session, Make: true, Wait: r.Wait}, func(n *protocol.Name) error {
			grant, taken = protocol.Take(n, r)
			return nil
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
		_, err = e.queries().MakeRow(ctx, r.Name)
	}
	if err != nil || there && !free(rowOf(r.Name, row)) {
		return driver.Grant{}, false, mysqlserver.Interpret(err)
	}
	grant, taken, err = e.takeAlone(ctx, r)
	return grant, taken, mysqlserver.Interpret(err)
}

// free reports whether the whole of a name is to be had, unless it rests.
func free(row protocol.Row) bool { return row.Waiters == 0 && row.Fits(0, 0) }

// takeAlone takes a whole name that is free, unless it rests, or another has its row locked.
func (e *engine) takeAlone(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	if f := e.info.Load(); f != nil && f.mariaDB {
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
	return driver.Grant{First: token, Token: token, Lease: r.Lease}, true, nil
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
		if there, err := q.RowExists(ctx, name); !there || err != nil {
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
	dead, there, err = find(ctx, q.LockSession, session)
	return dead, there, busy(err)
}

// busy is the error of a statement with NOWAIT. MariaDB's answer to that is a lock wait timeout:
// only the statement tells them apart.
func busy(err error) error {
	if n := mysqlserver.Number(err); n == mysqlserver.LockNoWait || n == mysqlserver.LockWaitTimeout {
		return driver.Fail(driver.ErrBusy, err)
	}
	return err
}

// granted is found for a statement with NOWAIT.
func granted(err error) (bool, error) { return found(busy(err)) }

// found tells a row that is missing from a failure.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func lease(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: d.Microseconds(), Valid: d > 0}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
