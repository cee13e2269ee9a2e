package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// proven returns the result of a statement. A statement that must change a row, and changed none,
// is transaction.ErrUnproven. Affected rows omit an UPDATE that writes equal values, unless the
// pool has clientFoundRows: such a statement sets LAST_INSERT_ID.
func proven(text string, result sql.Result, err error) (sql.Result, error) {
	if err == nil && returnsID(text) {
		return result, idOf(result)
	}
	if err != nil || !transaction.MustAct(text) {
		return result, err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		rows, err = result.LastInsertId()
	}
	if err == nil && rows == 0 {
		err = transaction.ErrUnproven
	}
	return result, err
}

// returnsID reports whether a statement sets LAST_INSERT_ID in each row that it changes.
func returnsID(text string) bool {
	kind, _, _ := strings.Cut(text, "\n")
	return strings.HasSuffix(kind, " :execlastid")
}

// made reports whether an INSERT has made its row. False: its key has a row.
func made(err error) (bool, error) {
	if mysqlserver.Number(err) == mysqlserver.DuplicateKey {
		return false, nil
	}
	return err == nil, err
}

// errReplaced is the error of a statement that has changed a row, and whose insert id is lost. The
// statement has had its effect.
var errReplaced = driver.Join(driver.Fail(driver.ErrConfig, errors.New("a statement has changed a row, and the "+
	"server returned no insert id: a trigger on dblock's tables replaces it (SHOW TRIGGERS needs the right TRIGGER): "+
	"drop it")), driver.ErrInDoubt)

// idOf returns errReplaced if a statement of returnsID has changed a row without an insert id.
func idOf(result sql.Result) error {
	rows, err := result.RowsAffected()
	if err != nil || rows == 0 {
		return err
	}
	id, err := result.LastInsertId()
	if err == nil && id == 0 {
		err = errReplaced
	}
	return err
}

// did returns transaction.ErrUnproven unless the statement has changed want rows.
func did(rows int64, err error, want int) error {
	if err == nil && rows != int64(want) {
		return transaction.ErrUnproven
	}
	return err
}

// whole returns a list without its end mark, a row that the statement adds: the last one, except on
// TiDB, which runs the parts of a UNION side by side. A list without that row was cut short, and
// must not decide anything.
func whole[T any](rows []T, err error, ends func(T) bool) ([]T, error) {
	mark := slices.IndexFunc(rows, ends)
	if err == nil && mark < 0 {
		err = transaction.ErrUnproven
	}
	if err != nil {
		return nil, err
	}
	return slices.Delete(rows, mark, mark+1), nil
}

// find reads a row. It reads twice before it reports that there is none.
func find[P, R any](
	ctx context.Context, ask func(context.Context, P) (R, error), what P,
) (row R, there bool, err error) {
	for range 2 {
		if row, err = ask(ctx, what); !errors.Is(err, sql.ErrNoRows) {
			return row, err == nil, err
		}
	}
	return row, false, nil
}
