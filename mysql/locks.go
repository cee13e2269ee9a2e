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
	"github.com/dblock-go/dblock/internal/transaction"
)

// lockRow locks a name's row in a transaction of dblock. If the row is missing it locks nothing, at
// READ COMMITTED. While a client attends the engine, a row that is locked is waited for in the
// server's order, for a second at most. Without wait, or a client, lockRow is retryRow. On TiDB it
// always is: there the limit of a wait is short, and would end a slow statement that does not wait.
func (e *engine) lockRow(
	ctx context.Context, q *mysqldb.Queries, name string, wait bool,
) (mysqldb.LockRowRow, bool, error) {
	return e.obtain(ctx, q, name, wait, wait && e.side.Attended() && !e.server().facts().limitEndsAll)
}

// retryRow is lockRow with statements that do not wait, so that none of them keeps a connection
// which the application needs. It retries for rowTimeout, enough for any transaction of dblock, and
// without wait for a fifth of that, enough for most of them. Then it fails with ErrBusy. On TiDB,
// where many transactions that retry would starve each other, the server has them wait in its
// order.
func (e *engine) retryRow(
	ctx context.Context, q *mysqldb.Queries, name string, wait bool,
) (mysqldb.LockRowRow, bool, error) {
	return e.obtain(ctx, q, name, wait, false)
}

func (e *engine) obtain(
	ctx context.Context, q *mysqldb.Queries, name string, wait, inOrder bool,
) (mysqldb.LockRowRow, bool, error) {
	timeout := e.rowTimeout
	if !wait {
		timeout /= 5
	}
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		row, err := lockRowOnce(ctx, q, name, inOrder)
		refused := mysqlserver.Number(err) == mysqlserver.LockNoWait
		if refused && wait {
			inOrder = true
			continue
		}
		if !refused {
			if there, err := granted(err); there || err != nil {
				return row, there, err
			}
			// the row may have been skipped
			if there, err := q.RowExists(ctx, name); !there || err != nil {
				return row, false, err
			}
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

// lockRowOnce locks a name's row, or returns sql.ErrNoRows. A row that is locked is skipped, or
// refused where the server cannot skip it; inOrder: it is waited for.
func lockRowOnce(
	ctx context.Context, q *mysqldb.Queries, name string, inOrder bool,
) (row mysqldb.LockRowRow, err error) {
	if !inOrder {
		return q.LockRow(ctx, name)
	}
	waited, err := q.LockRowInTurn(ctx, name)
	if transaction.IsTurnOver(err) {
		err = driver.Fail(driver.ErrBusy, fmt.Errorf("the row of %q is locked: %w", name, err))
	}
	return mysqldb.LockRowRow(waited), err
}

// sleep waits for half to one and a half times about. If ctx ends first, sleep returns its error.
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

// lockSession locks a session's row. It fails with ErrBusy if another transaction is ending the
// session.
func lockSession(ctx context.Context, q *mysqldb.Queries, session string) (dead, there bool, err error) {
	dead, there, err = find(ctx, q.LockSession, session)
	return dead, there, busy(err)
}

// busy converts the error of a statement with NOWAIT. MariaDB answers such a statement with a lock
// wait timeout, which only the caller can tell from a real one.
func busy(err error) error {
	if n := mysqlserver.Number(err); n == mysqlserver.LockNoWait || n == mysqlserver.LockWaitTimeout {
		return driver.Fail(driver.ErrBusy, err)
	}
	return err
}

// granted is found for a statement with NOWAIT.
func granted(err error) (bool, error) { return found(busy(err)) }

// found distinguishes a missing row from a failure.
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
