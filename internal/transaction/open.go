package transaction

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// ErrEnded is the error of a step in a transaction that the server has ended: each statement sent
// through it would commit by itself. It matches sql.ErrTxDone.
var ErrEnded = done("the server has no such transaction any more: an error that was not heeded has ended it (a " +
	"deadlock, say), or a COMMIT, a ROLLBACK or a statement with an implicit commit was sent as text")

// errFailed is the error of a step in a transaction of PostgreSQL after an error of the
// application's: the server refuses every statement but a rollback.
var errFailed = done("an error that was not heeded has aborted it")

func done(why string) error {
	return driver.Fail(driver.ErrTxDone,
		driver.Mark(sql.ErrTxDone, errors.New(why+": roll it back, and begin another")))
}

// Over returns the error of a step that PostgreSQL has refused because of the state of its
// transaction, nil for any other error.
func Over(err error) error {
	switch SQLState(err) {
	case "25P01": // no active transaction
		return driver.Join(ErrEnded, err)
	case "25P02": // failed transaction
		return driver.Join(errFailed, err)
	}
	return nil
}

// Variables for OpenMySQL.
const (
	OpenInMariaDB = "@@in_transaction"
	OpenInTiDB    = "@@tidb_current_ts"
)

// OpenMySQL returns ErrEnded unless the connection is in a transaction. variable is that of the
// server which is 0 outside of a transaction, "" for a server that has none. There a savepoint must
// still exist in the next statement: outside of a transaction it ends with its own. With autocommit
// off, the savepoint begins a transaction. A savepoint of the same name would end.
func OpenMySQL(ctx context.Context, q Queries, variable string) error {
	if variable == "" {
		if err := q.Exec(ctx, "SAVEPOINT dblock_open"); err != nil {
			return err
		}
		err := q.Exec(ctx, "RELEASE SAVEPOINT dblock_open")
		if mysqlNumber(err) == noSuchSavepoint {
			return ErrEnded
		}
		return err
	}
	var open int64
	switch there, err := q.Row(ctx, "SELECT "+variable+" <> 0", nil, &open); {
	case err != nil:
		return err
	case !there:
		return ErrUnproven
	case open == 0:
		return ErrEnded
	}
	return nil
}

// OpenSQLite returns ErrEnded unless the connection is in a transaction: then it refuses to begin
// one.
func OpenSQLite(ctx context.Context, q Queries) error {
	err := q.Exec(ctx, "BEGIN")
	if code, _ := sqliteCode(err); code&0xff == sqliteError {
		return nil
	}
	if err == nil {
		err = driver.Join(ErrEnded, q.Exec(ctx, "ROLLBACK"))
	}
	return err
}
