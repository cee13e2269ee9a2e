package mysqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// kinds are the kinds of errors that are already interpreted.
var kinds = []error{
	driver.ErrRefused, driver.ErrSchema, driver.ErrReadOnly, driver.ErrRetry, driver.ErrUnavailable, driver.ErrBusy,
	driver.ErrNotHeld,
	driver.ErrCapacity, driver.ErrUnsupported, driver.ErrConfig, driver.ErrTxDone, driver.ErrDenied,
}

// Interpret turns an error of the driver into a kind of package driver, by its number. An error
// without a number does not come from the server: a connection broke, or could not be made.
func Interpret(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if closed := driver.PoolClosed(err); closed != nil {
		return closed
	}
	if slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		return err
	}
	if open := transaction.RowsOpen(err); open != nil {
		return open
	}
	// the statement always returns a row, unless it was cut short
	if errors.Is(err, sql.ErrNoRows) {
		return driver.Fail(driver.ErrRetry, err)
	}
	if errors.Is(err, sql.ErrTxDone) {
		return driver.Fail(driver.ErrTxDone, err)
	}
	n := Number(err)
	if n == 0 {
		if server := transaction.Server(err); server != "" {
			return driver.Fail(driver.ErrConfig, fmt.Errorf("package mysql was given a pool of %s: %w", server, err))
		}
		return driver.Fail(driver.ErrUnavailable, err)
	}
	if n == noSuchTable && !strings.Contains(err.Error(), ".dblock_") {
		return driver.Refused(err) // a temporary table, or one of the application's
	}
	if transaction.Denied(err) { // no Kind, which would be that of a refused KILL, too
		return driver.Fail(driver.ErrConfig,
			fmt.Errorf("the user lacks a right of docs/privileges/mysql-app.sql (to only look: mysql-people.sql): %w",
				err))
	}
	kind := Kind(n)
	if n == runHook || n == rolledBack {
		err = driver.Join(err, driver.ErrInDoubt)
	}
	switch {
	case n == unknownError && says(err, undone), n == killed && says(err, ended):
		kind = driver.ErrRetry
	case n == unknownError && says(err, away):
		kind = driver.ErrUnavailable
	case n == killed && says(err, tooMany):
		kind = nil
	}
	if n == duringCommit && strings.Contains(err.Error(), lockDeadlock) {
		kind = driver.ErrRetry
	}
	if n == deadlock || n == recordChanged {
		err = driver.Mark(driver.ErrRolledBack, err)
	}
	switch kind {
	case nil:
		return driver.Refused(err)
	case errText:
		return driver.Fail(driver.ErrConfig, fmt.Errorf("%w: %w", errText, err))
	case driver.ErrReadOnly:
		err = fmt.Errorf("a failover may be in progress; connect to the primary: %w", err)
	}
	if err = driver.Fail(kind, err); lacksRoom(n) {
		err = driver.Refused(err)
	}
	return err
}

// AtCommit interprets an error of COMMIT. The servers have rolled back a transaction that lost a
// race. After any other error the outcome is unknown: an error of the binary log comes after the
// engine's commit.
func AtCommit(err error) error {
	if n := Number(err); n != 0 && Kind(n) != driver.ErrRetry && !strings.Contains(err.Error(), lockDeadlock) {
		return driver.Join(err, driver.ErrInDoubt)
	}
	return err
}

// errText means that a connection of the pool cannot carry a text, or changes it.
var errText = errors.New("a connection of the pool cannot carry the text: set charset=utf8mb4 in the DSN, " +
	"let character_set_connection be character_set_client, and keep EMPTY_STRING_IS_NULL out of sql_mode")

// Number returns the server's number of an error; 0 for an error that is not the server's.
func Number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// undone are texts of unknownError for a statement that was undone: of a killed UPDATE of a join on
// MySQL; on TiDB, of a transaction whose tables were altered meanwhile, and of a statement that a
// KILL or its time limit has ended.
var undone = []string{"multi-table update", "Information schema is changed", "context canceled", "lock wait timeout"}

// ended are texts of Vitess for a statement of a transaction that its tablet has ended, after its
// time limit for transactions say.
var ended = []string{": ended at ", ": not found", "in use: for tx killer rollback"}

// away are texts of unknownError of Vitess: no tablet serves the shard at this moment. Code 17 is
// that of a tablet which serves no more, or not yet.
var away = []string{"no healthy tablet available", "code = Unavailable", "code = Code(17)", "primary is not serving",
	"being resharded", "destination shard is missing", "primary buffer is full", "buffer full",
	"inconsistent state detected", "can't accept new connections in state"}

// tooMany is a text of Vitess for a result that is above a limit of its tablets, and will be again.
var tooMany = []string{"Row count exceeded"}

func says(err error, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// Error numbers that callers check, or that have a rule of their own.
const (
	LockWaitTimeout = 1205 // also MariaDB's answer to NOWAIT
	deadlock        = 1213
	recordChanged   = 1020 // MariaDB: since the transaction's snapshot
	killed          = 1317
	LockNoWait      = 3572
	DuplicateKey    = 1062
	TooManyPrepared = 1461 // max_prepared_stmt_count
	UnknownVariable = 1193
	UnknownDatabase = 1049
	NoSuchThread    = 1094
	noSuchTable     = 1146
	// unknownError is an error without a number of its own.
	unknownError = 1105
	duringCommit = 1180 // with InnoDB's own number in its text

	// runHook and rolledBack are refusals of a group at COMMIT. A member that leaves the group
	// reports either number for a transaction that it has sent to the others, which may have
	// committed it.
	runHook    = 3100
	rolledBack = 3101
)

// lockDeadlock is that number if a transaction of another node came first, in a group with several
// primaries.
const lockDeadlock = "error 149 "

// lacksRoom reports whether a server refuses a statement for want of a resource. Other errors of a
// server that cannot serve now leave the outcome of the statement unknown.
func lacksRoom(n uint16) bool {
	switch n {
	case 1021, 1114, 1037, 1038, 1041, 5, // disk full, table full, out of memory
		1040, 1203, 1226, TooManyPrepared, // too many connections, of one user, prepared statements
		1047, 1243, 1615: // cluster not ready; a proxy has forgotten the statement, or it changed underneath
		return true
	}
	return false
}

// Kind returns the kind of package driver of a server's error; nil: none.
func Kind(n uint16) error {
	switch n {
	case noSuchTable, 1054, 1356, // no such table, column; a view whose parts are gone
		8113: // TiDB: of a prepared statement
		return driver.ErrSchema
	case 1290, 1792, 1836, 1874, runHook:
		// --read-only, READ ONLY transaction, read-only mode, InnoDB read-only, a group's secondary
		return driver.ErrReadOnly
	case deadlock, LockWaitTimeout, recordChanged, 1614, rolledBack,
		// deadlock, lock wait, snapshot isolation, certification of a cluster, of a group
		8002, 8005, 8022, 8028, 8229, 9007:
		// TiDB: a commit that met another's write, a lock that was lost or expired, altered tables
		return driver.ErrRetry
	case LockNoWait:
		return driver.ErrBusy
	case 1045, 1698: // the user or the password; MariaDB without a password
		return driver.ErrDenied
	case 1048, 3819, 4025, // no name (MakeRow): null, or empty, as MySQL and MariaDB call the check
		// a text invalid in a character set, or one that cannot be converted or compared
		1300, 1366, 3988, 1267:
		return errText
	case 1665: // binlog_format=STATEMENT cannot log READ COMMITTED
		return driver.ErrConfig
	case 1021, 1026, 1030, 1114, 1037, 1038, 1041, 5, // disk full, I/O, table full, out of memory
		1040, 1203, 1226, TooManyPrepared, // too many connections, of one user, prepared statements
		1043, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, // handshake, shutdown, network
		duringCommit,     // the outcome is unknown
		1047, 1243, 1615, // cluster not ready; a proxy has forgotten the statement, or it changed underneath
		3032, 9001, // offline_mode; ProxySQL, which reaches no server, and TiDB, which reaches no PD
		9002, 9003, 9004, 9005, 9008, 9010, 9011, // TiDB: a store that does not answer, or is busy
		8027, 8175, 8176, // TiDB: a node that has lost touch with the cluster; out of memory
		// killed, over the application's time limit, gone, idle for too long; 2002 to 2013 of a
		// tablet of Vitess, which is a client of MySQL
		killed, 1927, 1969, 2002, 2003, 2006, 2013, 3024, 3168, 4031:
		return driver.ErrUnavailable
	}
	return nil
}
