package sqlite

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/transaction"
)

// queriesOn runs the generated statements on a connection or in a transaction. A statement that
// must change a row, and changed none, is an error.
func queriesOn(db sqlitedb.DBTX) *sqlitedb.Queries { return sqlitedb.New(proven{db}) }

type proven struct{ sqlitedb.DBTX }

func (p proven) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	result, err := p.DBTX.ExecContext(ctx, text, args...)
	if err != nil || !transaction.MustAct(text) {
		return result, err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = transaction.ErrSwallowed
	}
	return result, err
}
