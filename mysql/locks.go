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

// short does an op in fewer statements than general, or nothing. It releases a lock without waiters
// in a single statement, and hands over to one waiter by the short way. A session that is to be
// dead is expired before, in a transaction of its own: the order of locks puts its row behind the
// name's.
func (e *engine) short(ctx context.Context, op protocol.Op) (result protocol.Result, done bool, err error) {
	switch op := op.(type) {
	case protocol.Take:
		if op.Units > 0 || op.Members > 1 { // units are more than the lock's row, a cohort has several tokens
			return result, false, nil
		}
		result, err = e.take(ctx, op.Request)
		return result, true, mysqlserver.Interpret(err)
	case protocol.Join:
		joined, err := e.joinQueue(ctx, op.Request)
		return protocol.Result{Outcome: protocol.Queued}, joined, err
	case protocol.Removal:
		return e.remove(ctx, op)
	}
	return result, false, nil
}

func (e *engine) remove(ctx context.Context, r driver.Removal) (result protocol.Result, done bool, err error) {
	if r.Cause == driver.ByHolder && !r.Contended && !r.Shared && !r.Guarded {
		n, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{Name: r.Name, Session: r.Session, Token: r.Token})
		return protocol.Result{Outcome: protocol.Done}, n > 0, mysqlserver.Interpret(err)
	}
	if r.Cause == driver.ByHolder && r.Contended && !r.Shared && !r.Guarded {
		next, err := e.handToHead(ctx, r)
		return protocol.Result{Outcome: protocol.Done, Next: next}, len(next) > 0, err
	}
	if r.Cause == driver.ByTime && !r.LeaseOver {
		dead, err := e.Expire(ctx, r.Session)
		return protocol.Result{}, !dead, err
	}
	return result, false, nil
}

// take looks only where it took nothing, for what was in the way: the row is missing, or locked for
// the moment, or not free.
func (e *engine) take(ctx context.Context, r driver.Request) (protocol.Result, error) {
	if result, err := e.takeAlone(ctx, r); result.Done() || err != nil {
		return result, err
	}
	row, there, err := e.lockRow(ctx, e.queries(), r.Name, r.Wait)
	if err == nil && !there {
		_, err = e.queries().MakeRow(ctx, r.Name)
	}
	if err != nil || there && !free(rowOf(r.Name, row)) {
		return protocol.Result{}, err
	}
	return e.takeAlone(ctx, r)
}

// free reports whether the whole of a name is to be had, unless it rests.
func free(row protocol.Row) bool { return row.Waiters == 0 && row.Fits(0, 0) }

// takeAlone takes a whole name that is free, unless it rests, or another has its row locked.
func (e *engine) takeAlone(ctx context.Context, r driver.Request) (protocol.Result, error) {
	if f := e.info.Load(); f != nil && f.mariaDB {
		result, err := take(ctx, mysqldb.New(nowait{e.prepared}), r)
		if mysqlserver.Number(err) == mysqlserver.LockWaitTimeout {
			err = nil
		}
		return result, err
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
func take(ctx context.Context, q *mysqldb.Queries, r driver.Request) (protocol.Result, error) {
	token, err := q.TakeRow(ctx, mysqldb.TakeRowParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
	})
	return took(token, r, err)
}

// took is the result of a statement that returns 0 where it took nothing.
func took(token int64, r driver.Request, err error) (protocol.Result, error) {
	if err != nil || token == 0 {
		return protocol.Result{}, err
	}
	grant := driver.Grant{First: token, Token: token, Lease: r.Lease}
	return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
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
