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

// lockRow locks a name's row. If the row is missing it locks nothing, at READ COMMITTED. It retries
// a locked row for rowTimeout, enough for any transaction of dblock, and then fails with ErrBusy.
// Without wait it retries for a fifth of that, enough for most of them. Where many transactions
// that retry would starve each other, the server has them wait in its order.
func (e *engine) lockRow(
	ctx context.Context, q *mysqldb.Queries, name string, wait bool,
) (mysqldb.LockRowRow, bool, error) {
	timeout := e.rowTimeout
	if !wait {
		timeout /= 5
	}
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		row, err := q.LockRow(ctx, name)
		switch refused := mysqlserver.Number(err) == mysqlserver.LockNoWait; {
		case refused && wait:
			row, err := q.LockRowInTurn(ctx, name)
			if transaction.IsTurnOver(err) {
				err = driver.Fail(driver.ErrBusy, fmt.Errorf("the row of %q is locked: %w", name, err))
			}
			there, err := found(err)
			return mysqldb.LockRowRow(row), there, err
		case !refused:
			if there, err := found(err); there || err != nil {
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
