package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

const (
	// keepRow is the time for which a purge spares a row that LockTx has made or touched. enough is
	// the part of it that must remain when LockTx goes on to lock the row, two statements later.
	keepRow = 10 * time.Minute
	enough  = time.Minute
)

var (
	errPurged = driver.Fail(driver.ErrRetry,
		errors.New("the lock's row was purged in the same moment, and its place may be locked: roll back"))
	errTaken = driver.Fail(driver.ErrRetry,
		errors.New("another client took the lock in the same moment, and cannot release it before this "+
			"transaction ends: roll back"))
	errRests = driver.Fail(driver.ErrRetry,
		errors.New("the lock was just released and MinHold has not elapsed: roll back"))
)

// Lock reads outside the transaction before it locks anything inside, since a transaction cannot
// release a row lock. It also makes the row there, and protects it from a purge. At REPEATABLE READ
// and above, a read of a missing row inside the transaction would lock the gap around it, and every
// insert there would wait for the transaction.
func (t inTx) Lock(
	ctx context.Context, name string, may driver.Pass, wait bool, onSideConn driver.OnSideConn,
) (driver.State, bool, error) {
	free := func(session, attempt string, used, waiters int32) bool {
		return session == "" && used == 0 && waiters == 0 || session != "" && may(attempt, int(waiters), t.tx)
	}
	if err := t.oneWriter(ctx, "LockTx", onSideConn); err != nil {
		return driver.State{}, false, err
	}
	var state driver.State
	var open bool
	err := t.open(ctx, func() (err error) {
		state, open, err = t.look(ctx, name, free, onSideConn)
		return err
	})
	if err != nil || !open {
		return state, false, err
	}
	row, there, err := t.lock(ctx, name, wait)
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
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	if row.RestsUntil > 0 && row.SessionID == "" {
		now, err := t.queries().Clock(quiet) // after the lock, which may have taken time
		if err != nil {
			return driver.State{}, false, ended(quiet, err)
		}
		if row.RestsUntil > now {
			return driver.State{}, false, errRests
		}
	}
	if err := t.engine.server().traceRow(quiet, t, name, row); err != nil {
		return driver.State{}, false, err
	}
	return driver.State{Database: row.DatabaseID}, true, nil
}

// plainTx is a transaction of any pool. Its statements name the place of the tables.
type plainTx struct {
	*sql.Tx
	in *tables.In
}

// Text returns a statement that is the same on all servers.
func (plainTx) Text(query string) string { return query }

func (t plainTx) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	return t.Tx.QueryRowContext(ctx, t.in.MySQL(text), args...)
}

func (t inTx) Database(ctx context.Context) (string, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	// The engine's prepared statements do not fit: the transaction may be of another pool.
	id, err := mysqldb.New(plainTx{t.tx, t.engine.prepared.tables.In()}).Database(quiet)
	return id, ended(quiet, err)
}

// look reports whether a name is free for LockTx. If so, it has made sure that the name's row
// exists and stays. Otherwise it returns the state.
func (t inTx) look(
	ctx context.Context, name string, free func(session, attempt string, used, waiters int32) bool,
	onSideConn driver.OnSideConn,
) (state driver.State, open bool, err error) {
	err = onSideConn(ctx, func(ctx context.Context, up driver.Upkeep) (err error) {
		state, open, err = t.engine.look(ctx, up.(upkeep), name, free)
		return mysqlserver.Interpret(err)
	})
	return state, open, err
}

// look retries a locked row that is to be protected from a purge, for as long as a purge takes. If
// the row stays locked for longer, an application's transaction has it, and a purge skips it.
func (e *engine) look(
	ctx context.Context, up upkeep, name string, free func(session, attempt string, used, waiters int32) bool,
) (driver.State, bool, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var row mysqldb.FindRowRow
		var there bool
		err := up.lone(ctx, func(q *mysqldb.Queries) (err error) {
			row, err = q.FindRow(ctx, mysqldb.FindRowParams{Name: name, Enough: enough.Microseconds()})
			there, err = found(err)
			return err
		})
		switch {
		case err != nil:
			return driver.State{}, false, err
		case !there:
			if err := up.makeRow(ctx, name); err != nil {
				return driver.State{}, false, err
			}
			continue
		case !free(row.SessionID, row.Attempt, row.SharedUnits, row.Waiters) || row.Rests != 0 && row.SessionID == "":
			var states []driver.State
			err := up.lone(ctx, func(q *mysqldb.Queries) (err error) {
				states, err = read(ctx, q, "", []string{name}, 0)
				return err
			})
			if err != nil || len(states) > 0 {
				return append(states, driver.State{})[0], false, err
			}
			continue // purged since
		case row.Kept != 0 || row.SessionID != "":
			return driver.State{}, true, nil
		}
		kept, err := up.keepRow(ctx, name)
		if err != nil || kept || time.Since(began) > e.rowTimeout {
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

// keepRow protects the row of a free name from a purge, and reports whether it did. Where KeepRow
// cannot skip a locked row, and would wait for it, keepRow locks the row first.
func (u upkeep) keepRow(ctx context.Context, name string) (kept bool, err error) {
	err = u.lone(ctx, func(q *mysqldb.Queries) error {
		if u.of.server().facts().noSkipLocked {
			_, err := q.LockRow(ctx, name)
			if there, err := granted(err); err != nil || !there {
				return err
			}
		}
		n, err := q.KeepRow(ctx, mysqldb.KeepRowParams{Name: name, Keep: keepRow.Microseconds()})
		kept = n > 0
		return err
	})
	if errors.Is(err, driver.ErrBusy) {
		err = nil
	}
	return kept && err == nil, err
}

// makeRow makes a name's row. If another client makes the same row at this moment, makeRow returns
// nil and its caller reads again. That row may be locked, and the insert waits for it for at most a
// second at a time. MariaDB with innodb_snapshot_isolation refuses a row that the snapshot does not
// have, also at READ COMMITTED.
func (u upkeep) makeRow(ctx context.Context, name string) error {
	err := u.lone(ctx, func(q *mysqldb.Queries) error {
		_, err := q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: name, Keep: keepRow.Microseconds()})
		return err
	})
	if errors.Is(err, driver.ErrRetry) {
		return nil
	}
	return err
}

// lock locks a name's row in the caller's transaction. It returns false if the row is missing, and
// ErrBusy if the row is locked and wait is false. It runs after OnSideConn, so the server's
// properties are known. It waits in turns inside the server, which serves waiters in order (except
// at the end of a turn) and detects deadlocks. If the server detects none, lock waits no longer
// than innodb_lock_wait_timeout, which each turn begins anew.
func (t inTx) lock(ctx context.Context, name string, wait bool) (mysqldb.AwaitRowRow, bool, error) {
	quiet, cancel := transaction.Lenient(ctx)
	defer cancel()
	q := t.queries()
	// Where a refused NOWAIT would end the transaction, one turn is waited for.
	if !wait && !t.engine.info.Load().undoes {
		row, err := q.LockRowNow(quiet, transaction.Hex(name))
		there, err := granted(err)
		return mysqldb.AwaitRowRow(row), there, transaction.Ended(ctx, quiet, err)
	}
	first := time.Now()
	for {
		began := time.Now()
		row, err := q.AwaitRow(quiet, transaction.Hex(name))
		there, err := found(err)
		if err == nil && !there && time.Since(began) >= transaction.Turn {
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
		if patience := t.patience(quiet); patience > 0 && time.Since(first) >= patience {
			return row, false, driver.Fail(driver.ErrRetry, stale(fmt.Sprintf("another transaction was in the way for "+
				"%v (innodb_lock_wait_timeout), and the server does not say whether that is a deadlock "+
				"(innodb_deadlock_detect=OFF): roll back and begin the transaction again", patience)))
		}
	}
}

// patience returns how long the caller's session waits for a row on a server that detects no
// deadlocks; 0: it detects them, as every server does that does not have the variable.
func (t inTx) patience(quiet context.Context) time.Duration {
	var detects bool
	var seconds int64
	err := t.tx.QueryRowContext(quiet, "SELECT @@GLOBAL.innodb_deadlock_detect, @@SESSION.innodb_lock_wait_timeout").
		Scan(&detects, &seconds)
	if err != nil || detects {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
