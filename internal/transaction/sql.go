package transaction

import (
	"context"
	"database/sql"
	"errors"
)

// sqlTx is a *sql.Tx, or a type that embeds one. The last two methods distinguish it from a pool
// and a connection.
type sqlTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

type sqlQueries struct{ tx sqlTx }

// On returns Queries that run in a transaction.
func On(tx *sql.Tx) Queries { return sqlQueries{tx} }

func (q sqlQueries) Exec(ctx context.Context, text string, args ...any) error {
	_, err := q.tx.ExecContext(ctx, text, args...)
	return err
}

func (q sqlQueries) Row(ctx context.Context, text string, args []any, into ...any) (bool, error) {
	return found(q.tx.QueryRowContext(ctx, text, args...).Scan(into...))
}

func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
