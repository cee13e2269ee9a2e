package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// tiDB is TiDB.
//
// Its clock is that of the cluster, at which the transaction began. In a transaction that locks by
// NOWAIT it is never later than the lock. Outside of a transaction it is 0, so that the expression
// is null and the statement fails. TIDB_CURRENT_TSO() returns the same number, but a prepared
// statement would return the number of its first run again: TiDB keeps the plan with its constants.
// A statement with a variable is planned anew.
//
// Its collations ignore spaces at the end. Where a column must equal a text, its planner writes the
// text for the column elsewhere in the condition, which is wrong for such a collation.
//
// SKIP LOCKED and LOCK IN SHARE MODE lock nothing. A statement without a transaction is optimistic:
// it waits for a locked row for more than a minute, whatever innodb_lock_wait_timeout says.
//
// A transaction's locks are in the memory of one node, and may be lost with it. Then its COMMIT
// fails if another transaction has written one of the rows since. So every transaction that relies
// on a lock writes the row.
type tiDB struct{ transacting }

var inTiDB = &tiDB{transacting{common{facts{
	texts:  mysqldb.TiDB,
	byView: mysqldb.TiDBByView,
	resets: resetLimit,
	open:   transaction.OpenInTiDB,
	deaf: driver.Fail(driver.ErrUnsupported,
		errors.New("TiDB has no KILL of the connection that has a named lock, which would wake a listener")),
	noSkipLocked: true, limitEndsAll: true,
	pairs: []pair{{"FOR UPDATE", []string{"FOR UPDATE NOWAIT"}}},
}}}}

// examine refuses settings that only TiDB has.
func (*tiDB) examine(ctx context.Context, on *sql.Conn, _ string) error {
	settings := []struct{ variable, want, so string }{
		{"@@tidb_txn_mode", "pessimistic", "transactions lock nothing before they commit"},
		{"@@tidb_enable_noop_functions", "OFF", "locks that do not exist are granted"},
		{"@@tidb_snapshot", "", "statements read the past"},
		{"@@tidb_read_staleness", "0", "statements read the past"},
		{"@@tidb_low_resolution_tso", "0", "the clock stands still for two seconds, and statements read the past"},
	}
	values, into, names := make([]string, len(settings)), make([]any, len(settings)), make([]string, len(settings))
	for i, s := range settings {
		into[i], names[i] = &values[i], s.variable
	}
	if err := on.QueryRowContext(ctx, "SELECT "+strings.Join(names, ", ")).Scan(into...); err != nil {
		return err
	}
	for i, s := range settings {
		if !strings.EqualFold(values[i], s.want) {
			return refused("%s = %q, with which %s: leave it at %q", strings.TrimPrefix(s.variable, "@@"), values[i],
				s.so, s.want)
		}
	}
	return nil
}

var errOld = driver.Fail(driver.ErrRetry, stale("another client had the lock after the transaction's snapshot was "+
	"made: roll back and begin the transaction again, or begin it at READ COMMITTED"))

// traceRow writes the row. It returns errOld if another holder had the lock after the transaction's
// snapshot was made, which then lacks the work of that holder.
func (*tiDB) traceRow(quiet context.Context, t inTx, name string, row mysqldb.AwaitRowRow) error {
	// first, since a transaction sees its own writes in place of its snapshot
	was, there, err := find(quiet, t.queries().SnapshotRow, any(transaction.Hex(name)))
	if err != nil {
		return ended(quiet, err)
	}
	ticket, err := t.queries().LeaveTrace(quiet, transaction.Hex(name))
	if err == nil && ticket == 0 {
		err = transaction.ErrUnproven
	}
	switch {
	case err != nil:
		return ended(quiet, err)
	case there && (was.SessionID != row.SessionID || was.SharedUnits > 0 || was.Token != row.Token ||
		was.NextTicket != ticket):
		return errOld
	case !there && (ticket > 1 || row.LastToken > 0): // the row is new, and was used
		return errOld
	}
	return nil
}

// traceGuard writes the guard's row. It returns ErrRetry if the transaction's snapshot is older
// than the lock.
func (*tiDB) traceGuard(quiet context.Context, t inTx, h protocol.Held, attempt string) error {
	counted, err := t.queries().CountGuarded(quiet, attempt)
	if err = did(counted, err, 1); err == nil {
		_, err = lookGuard(quiet, t.queries(), h)
	}
	if errors.Is(err, driver.ErrNotHeld) {
		return errOlder
	}
	return ended(quiet, err)
}
