package pgserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// Interpret turns an error of any PostgreSQL driver into a kind of package driver, by its SQLSTATE.
// An error without an SQLSTATE does not come from the server: a connection broke, or could not be
// made.
func Interpret(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if closed := driver.PoolClosed(err); closed != nil {
		return closed
	}
	for _, kind := range []error{driver.ErrRefused, driver.ErrUnsupported, driver.ErrConfig, driver.ErrUnavailable,
		driver.ErrReadOnly} {
		if errors.Is(err, kind) {
			return err
		}
	}
	if open := transaction.RowsOpen(err); open != nil {
		return open
	}
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed) {
		return driver.Fail(driver.ErrTxDone, err)
	}
	if over := transaction.Over(err); over != nil {
		return driver.Refused(over)
	}
	state := State(err)
	if state == divisionByZero { // see proven of package postgres
		return driver.Join(transaction.ErrSwallowed, err)
	}
	if state == "" {
		if server := transaction.Server(err); server != "" {
			return driver.Fail(driver.ErrConfig, fmt.Errorf("package postgres was given a pool of %s: %w", server, err))
		}
		return driver.Fail(driver.ErrUnavailable, err)
	}
	kind := kindOf(state)
	switch {
	case singleStatements(state, err):
		err = driver.Fail(driver.ErrConfig, explained(state, err))
	case kind != nil && inDoubt(state):
		return driver.Fail(kind, explained(state, err))
	case kind != nil:
		err = driver.Fail(kind, explained(state, err))
	}
	return driver.Refused(err)
}

// inDoubt reports whether an error leaves the outcome of the transaction unknown: the server, or a
// pooler before it, reports that it ends the connection. After every other error, also that of
// COMMIT, the server has rolled the transaction back.
func inDoubt(state string) bool {
	switch state[:min(3, len(state))] {
	case "57P", "580": // shutdown, crash; a system error
		return true
	}
	return strings.HasPrefix(state, "08") || state == "XX000" // the only code of some poolers
}

// explained adds to a server's error the facts that its text leaves out.
func explained(state string, err error) error {
	switch {
	case state == readOnly:
		return fmt.Errorf("a failover may be in progress; connect to the primary (target_session_attrs=read-write): %w",
			err)
	case state == protocolViolation && strings.Contains(err.Error(), "server_login_retry"):
		return fmt.Errorf("PgBouncer cannot reach the server, and repeats its last failure for server_login_retry "+
			"seconds: %w", err)
	case singleStatements(state, err):
		return fmt.Errorf("PgBouncer lends connections by the statement, and no transaction can be made: let it "+
			"pool sessions or transactions (pool_mode): %w", err)
	case state == untranslatable:
		return fmt.Errorf("a text has a character that the encoding of the database lacks: %w", err)
	case state == denied && strings.Contains(err.Error(), "row-level security"):
		return fmt.Errorf("%s: %w", RowSecurity, err)
	case state == denied:
		return fmt.Errorf("the role lacks a right of docs/privileges/postgres-app.sql (to only look: "+
			"postgres-people.sql): %w", err)
	}
	return err
}

// RowSecurity says what to do about row level security that is in the way.
const RowSecurity = "dblock's tables need no row level security: switch it off for them, or give the role a policy " +
	"that lets it read and write all rows of each"

// singleStatements reports whether an error is that of a PgBouncer with pool_mode = statement.
func singleStatements(state string, err error) bool {
	return state == protocolViolation && strings.Contains(err.Error(), "statement pooling")
}

// SQLSTATEs that callers check.
const (
	divisionByZero       = "22012"
	Deadlock             = "40P01"
	LockNotAvailable     = "55P03" // NOWAIT found the row locked, or lock_timeout ended
	SerializationFailure = "40001"
	QueryCanceled        = "57014" // a request to cancel, or statement_timeout
	UniqueViolation      = "23505"
	OutOfMemory          = "53200" // also a full table of locks
	LimitExceeded        = "54000" // at COMMIT: the queue of notifications is full

	denied            = "42501" // a right of the role is missing; also a row that row level security refuses
	readOnly          = "25006" // of a transaction: a standby, or default_transaction_read_only
	untranslatable    = "22P05" // a character without an equivalent
	protocolViolation = "08P01" // no protocol error: PgBouncer has no other code for its own errors
)

// State returns the SQLSTATE of a server's error; "" for any other error.
func State(err error) string { return transaction.SQLState(err) }

func kindOf(state string) error {
	switch state {
	case "42P01", "42883", "42703", "3F000": // undefined table, function, column, schema
		return driver.ErrSchema
	case readOnly:
		return driver.ErrReadOnly
	case "28P01", "28000": // the password, or the user
		return driver.ErrDenied
	case untranslatable, denied:
		return driver.ErrConfig
	case SerializationFailure, Deadlock:
		return driver.ErrRetry
	case LockNotAvailable:
		return driver.ErrBusy
	case QueryCanceled, "25P03", "25P04": // and idle_in_transaction_session_timeout, transaction_timeout
		return driver.ErrUnavailable
	}
	switch state[:min(2, len(state))] {
	case "08", "53", "57", "58", "XX":
		// connection, resources (disk full, too many connections), shutdown, I/O, internal
		return driver.ErrUnavailable
	}
	return nil
}
