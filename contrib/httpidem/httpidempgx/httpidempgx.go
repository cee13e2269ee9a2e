// Package httpidempgx lets package httpidem work in transactions of pgx. It is a package of its
// own, so that builds for other servers have nothing of pgx.
package httpidempgx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/contrib/httpidem"
	"github.com/dblock-go/dblock/migrations"
)

// Pool returns the database of a pool of pgx.
func Pool(pool *pgxpool.Pool) httpidem.Database[pgx.Tx] { return database{pool} }

type database struct{ pool *pgxpool.Pool }

func (database) Engine() migrations.Engine { return migrations.Postgres }

func (d database) Begin(ctx context.Context) (pgx.Tx, error) { return d.pool.Begin(ctx) }

func (database) Commit(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }

func (database) Rollback(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }

func (database) Exec(ctx context.Context, tx pgx.Tx, text string, args ...any) (rows int64, err error) {
	done, err := tx.Exec(ctx, text, args...)
	return done.RowsAffected(), err
}

func (database) Row(ctx context.Context, tx pgx.Tx, text string, args []any, into ...any) (bool, error) {
	err := tx.QueryRow(ctx, text, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
