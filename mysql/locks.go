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
)

// lockRow locks a name's row. Without one it locks nothing, at READ COMMITTED. A row that is locked
// it asks for again and again, for as long as a transaction of dblock's own may take: ErrBusy.
// Without wait it does so just long enough for most of them.
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
