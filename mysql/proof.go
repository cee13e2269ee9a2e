package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
)

// errUnproven is the error of a statement that the server has answered, and that did nothing.
// MariaDB answers "OK, 0 rows" to some statements that a KILL QUERY or max_statement_time has cut
// short, and the transaction could commit the rest. A trigger can swallow a write, too.
var errUnproven = driver.Fail(driver.ErrRetry, stale("the server answered that a statement was done, and it did nothing: "+
	"a KILL QUERY or a limit for the time of statements may have cut it short: roll back, and begin the transaction anew"))

// proven returns the result of a statement. Every statement of the kind :exec must do at least one
// row: otherwise proven returns errUnproven. A statement that may find nothing to do is of the kind
// :execrows or :execlastid, and its caller looks at the answer. The affected rows do not count an
// UPDATE that changes nothing, unless the pool has clientFoundRows: such a statement sets
// LAST_INSERT_ID.
func proven(text string, result sql.Result, err error) (sql.Result, error) {
	if kind, _, _ := strings.Cut(text, "\n"); err != nil || !strings.HasSuffix(kind, " :exec") {
		return result, err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		rows, err = result.LastInsertId()
	}
	if err == nil && rows == 0 {
		err = errUnproven
	}
	return result, err
}

// did returns errUnproven unless a statement has done so many rows.
func did(rows int64, err error, want int) error {
	if err == nil && rows != int64(want) {
		return errUnproven
	}
	return err
}

// whole returns a list without its last row, which the statement adds behind all that it finds. A
// list without that row was cut short, and must not decide anything.
func whole[T any](rows []T, err error, ends func(T) bool) ([]T, error) {
	last := len(rows) - 1
	if err == nil && (last < 0 || !ends(rows[last])) {
		err = errUnproven
	}
	if err != nil {
		return nil, err
	}
	return rows[:last], nil
}

// find asks for a row. It asks once more before it reports that there is none.
func find[P, R any](ctx context.Context, ask func(context.Context, P) (R, error), what P) (row R, there bool, err error) {
	for range 2 {
		if row, err = ask(ctx, what); !errors.Is(err, sql.ErrNoRows) {
			return row, err == nil, err
		}
	}
	return row, false, nil
}
