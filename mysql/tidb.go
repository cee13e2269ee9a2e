package mysql

import (
	"errors"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// inTiDB is the dialect of TiDB.
//
// Its clock is that of the cluster, at which the transaction began. In a transaction that locks by
// NOWAIT it is never later than the lock. Outside of a transaction it is 0, so that the expression
// is null and the statement fails. TIDB_CURRENT_TSO() returns the same number, but a prepared
// statement would return the number of its first run again: TiDB keeps the plan with its constants.
// A statement with a variable is planned anew. PD moves the clock every 50 ms.
//
// Its collations ignore spaces at the end. Where a column must equal a text, its planner writes the
// text for the column elsewhere in the condition, which is wrong for such a collation.
//
// SKIP LOCKED and LOCK IN SHARE MODE lock nothing. A statement without a transaction is optimistic:
// it waits for a locked row for more than a minute, whatever innodb_lock_wait_timeout says.
//
// A transaction's locks are in the memory of one node, and may be lost with it. Then its COMMIT
// fails if another transaction has written one of the rows since.
var inTiDB = &dialect{
	now: tiDBNow,
	rewrites: strings.NewReplacer(
		"@@sql_log_bin", "1", // there is none
		"FOR UPDATE SKIP LOCKED", "FOR UPDATE NOWAIT",
		"LOCK IN SHARE MODE", "FOR UPDATE",
		// of a constant, the statement returns it even if it finds no row
		"dead = LAST_INSERT_ID(", "dead = LAST_INSERT_ID(0 * pid + ",
		"next_ticket = LAST_INSERT_ID(", "next_ticket = LAST_INSERT_ID(0 * token + ",
		"began_at = LAST_INSERT_ID(", "began_at = LAST_INSERT_ID(0 * slot + ",
		"ended_at = LAST_INSERT_ID(", "ended_at = LAST_INSERT_ID(0 * slot + ",
		"since = LAST_INSERT_ID(", "since = LAST_INSERT_ID(0 * one + ",
		// with the text in place of the column, the lengths are always equal
		"s.host = ? AND CHAR", "CONCAT(s.host, '.') = CONCAT(?, '.') AND CHAR",
		"s.app = ? AND CHAR", "CONCAT(s.app, '.') = CONCAT(?, '.') AND CHAR",
		"l.host = ? AND CHAR", "CONCAT(l.host, '.') = CONCAT(?, '.') AND CHAR",
		"h.host = ? AND CHAR", "CONCAT(h.host, '.') = CONCAT(?, '.') AND CHAR",
		// every node of a cluster has the same tables
		"CAST(CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS CHAR)",
		"(SELECT i.database_id FROM dblock_schema i)",
	),
	step:  50 * time.Millisecond,
	plain: true,
	skips: 1,
	deaf: driver.Fail(driver.ErrUnsupported,
		errors.New("TiDB has no KILL of the connection that has a named lock, which would wake a listener")),
	silent: true,
	open:   transaction.OpenInTiDB,
	writes: true,
	pairs:  []pair{{"FOR UPDATE", []string{"FOR UPDATE NOWAIT"}}},
	settings: []setting{
		{"@@tidb_txn_mode", "pessimistic", "transactions lock nothing before they commit"},
		{"@@tidb_enable_noop_functions", "OFF", "locks that do not exist are granted"},
		{"@@tidb_snapshot", "", "statements read the past"},
		{"@@tidb_read_staleness", "0", "statements read the past"},
		{"@@tidb_low_resolution_tso", "0", "the clock stands still for two seconds, and statements read the past"},
	},
}

const tiDBNow = "CAST((NULLIF(@@tidb_current_ts, 0) >> 18) * 1000 AS SIGNED)"
