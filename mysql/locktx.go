package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	// keepRow is for how long a purge leaves a row alone that LockTx has made or touched; enough is
	// what must be left of that when LockTx goes on to lock the row, in the next statement but one.
	keepRow = 10 * time.Minute
	enough  = time.Minute
)

var (
	errPurged = driver.Fail(driver.ErrRetry,
		errors.New("the lock's row was purged in the same moment, and its place may be locked: roll back"))
	errTaken = driver.Fail(driver.ErrRetry,
		errors.New("another took the lock in the same moment, and must wait for this transaction to release it: "+
			"roll back"))
	errRests = driver.Fail(driver.ErrRetry,
		errors.New(
			"another had the lock in the same moment, and nobody gets it yet for the sake of MinHold: roll back"))
)

// LockTx looks beside the transaction before it locks anything in it, since a row lock cannot be
// given back. The row is made there too, and kept from a purge: in the transaction, at REPEATABLE
// READ and above, to look for a row that is missing locks the gap where it would be, and every
// insert there waits for the transaction.
func (t transactions) LockTx(
	ctx context.Context, tx *sql.Tx, name string, may driver.Pass, wait bool, onSideConn driver.OnSideConn,
) (driver.State, bool, error) {
	free := func(session, attempt string, used, waiters int32) bool {
		return session == "" && used == 0 && waiters == 0 || session != "" && may(attempt, int(waiters), tx)
	}
	if err := t.oneWriter(ctx, "LockTx", onSideConn); err != nil {
		return driver.State{}, false, err
	}
	state, open, err := t.open(ctx, name, free, onSideConn)
	if err != nil || !open {
		return state, false, err
	}
	row, there, err := t.lock(ctx, tx, name, wait)
	switch {
	case errors.Is(err, driver.ErrBusy) && !wait:
		return driver.State{}, false, nil
	case err != nil:
		return driver.State{}, false, mysqlserver.Interpret(err)
	case !there:
		return driver.State{}, false, errPurged
	case !free(row.SessionID, row.Attempt, row.SharedUnits, row.Waiters):
		return driver.State{}, false, errTaken
	}
	if row.RestsUntil > 0 && row.SessionID == "" {
		quiet, cancel := transaction.Lenient(ctx)
		defer cancel()
		now, err := t.queries(tx).Clock(quiet) // after the lock, which may have been waited for
		if err != nil {
			return driver.State{}, false, ended(quiet, err)
		}
		if row.RestsUntil > now {
			return driver.State{}, false, errRests
		}
	}
	return driver.State{Database: row.DatabaseID}, true, nil
}

// plainTx is a transaction of any pool.
type plainTx struct {
	*sql.Tx
	in *tables.In
}

func (t plainTx) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	return t.Tx.QueryRowContext(ctx, t.in.MySQL(text), args...)
}

func (t transactions) Database(ctx context.Context, tx *sql.Tx) (string, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	// no statement of the engine's: tx may be of another pool
	id, err := mysqldb.New(plainTx{tx, t.engine.prepared.in}).Database(quiet)
	return id, ended(quiet, err)
}

// open reports whether a name is free for LockTx, and if so has made sure that its row is there and
// stays. Otherwise it returns the state.
func (t transactions) open(
	ctx context.Context, name string, free func(session, attempt string, used, waiters int32) bool,
	onSideConn driver.OnSideConn,
) (state driver.State, open bool, err error) {
	err = onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) (err error) {
		state, open, err = t.engine.open(ctx, up.(upkeep), name, free)
		return mysqlserver.Interpret(err)
	})
	return state, open, err
}

// open comes back to a row that is locked while it ought to be kept from a purge: for as long as a
// purge takes. Whatever has it locked for longer is the application's, and what that has locked
// nobody purges.
func (e *engine) open(
	ctx context.Context, up upkeep, name string, free func(session, attempt string, used, waiters int32) bool,
) (driver.State, bool, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		row, err := up.q.FindRow(ctx, mysqldb.FindRowParams{Name: name, Enough: enough.Microseconds()})
		there, err := found(err)
		switch {
		case err != nil:
			return driver.State{}, false, err
		case !there:
			if err := up.makeRow(ctx, name); err != nil {
				return driver.State{}, false, err
			}
			continue
		case !free(row.SessionID, row.Attempt, row.SharedUnits, row.Waiters) || row.Rests != 0 && row.SessionID == "":
			states, err := read(ctx, up.q, "", []string{name}, 0)
			if err != nil || len(states) > 0 {
				return append(states, driver.State{})[0], false, err
			}
			continue // purged since
		case row.Kept != 0 || row.SessionID != "":
			return driver.State{}, true, nil
		}
		kept, err := up.q.KeepRow(ctx, mysqldb.KeepRowParams{Name: name, Keep: keepRow.Microseconds()})
		if err != nil || kept > 0 || time.Since(began) > e.rowTimeout {
			return driver.State{}, err == nil, err
		}
		if e.obstructed != nil {
			e.obstructed()
		}
		if err := sleep(ctx, pause); err != nil {
			return driver.State{}, false, err
		}
	}
}

// makeRow makes a name's row, or has its caller look again where somebody makes it in the same
// moment. That may be locked, and is waited for, for no longer than a second at a time; MariaDB
// refuses what its innodb_snapshot_isolation has not seen, at READ COMMITTED too.
func (u upkeep) makeRow(ctx context.Context, name string) error {
	_, err := u.q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: name, Keep: keepRow.Microseconds()})
	if errors.Is(mysqlserver.Interpret(err), driver.ErrRetry) {
		return nil
	}
	return err
}

// lock locks a name's row in the caller's transaction. It reports false where the row is missing,
// and is ErrBusy where the row is locked and must not be waited for. It runs after OnSideConn has
// run: the server is known. It waits in turns, of which the server knows: it serves those that wait
// in their order, but for the end of a turn, and finds deadlocks.
func (t transactions) lock(ctx context.Context, tx *sql.Tx, name string, wait bool) (mysqldb.AwaitRowRow, bool, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	limit := transaction.Turn
	// a refused NOWAIT would end the transaction
	if info := t.engine.info.Load(); !wait && info.undoes && info.mariaDB {
		limit = t.engine.rowTimeout
	} else if !wait {
		row, err := t.queries(tx).LockRowNow(quiet, transaction.Hex(name))
		there, err := granted(err)
		return mysqldb.AwaitRowRow(row), there, transaction.Ended(ctx, quiet, err)
	}
	q := mysqldb.New(inTurn{preparedTx{t.engine.prepared, tx}, limit})
	for {
		began := time.Now()
		row, err := q.AwaitRow(quiet, transaction.Hex(name))
		there, err := found(err)
		if err == nil && !there && time.Since(began) >= limit {
			err = transaction.ErrCut
		}
		switch over := transaction.IsTurnOver(err); {
		case !over:
			return row, there, transaction.Ended(ctx, quiet, err)
		case ctx.Err() != nil:
			return row, false, driver.Join(ctx.Err(), err)
		case !wait:
			return row, false, driver.Fail(driver.ErrBusy, err)
		}
	}
}

// inTurn has queries that wait for a row for no longer than a limit.
type inTurn struct {
	mysqldb.DBTX
	limit time.Duration
}

func (t inTurn) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	return t.DBTX.QueryRowContext(ctx, transaction.InTurn(text, t.limit), args...)
}
