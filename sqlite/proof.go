package sqlite

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

// queriesOn runs the generated statements on a connection or in a transaction. They name the main
// database if that has the tables: SQLite looks first among the temporary tables of a connection.
// A statement that must change a row, and changed none, is an error.
func (d *database) queriesOn(db sqlitedb.DBTX) *sqlitedb.Queries {
	return sqlitedb.New(proven{inMain{db, &d.tables}})
}

// inMain has statements name the place of the tables.
type inMain struct {
	sqlitedb.DBTX
	tables *tables.Place
}

func (m inMain) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return m.DBTX.ExecContext(ctx, m.tables.In().SQLite(text), args...)
}

func (m inMain) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return m.DBTX.QueryContext(ctx, m.tables.In().SQLite(text), args...)
}

func (m inMain) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	return m.DBTX.QueryRowContext(ctx, m.tables.In().SQLite(text), args...)
}

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
