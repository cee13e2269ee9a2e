// Package migratepgx makes dblock's tables over a pool of pgx. It is package migrate, which knows
// database/sql alone, so that builds for other servers have nothing of pgx.
package migratepgx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/migrate"
)

// Up is migrate.Up over the application's pool, of which it uses one connection, and which it never
// closes. Default: migrate.Locks.
func Up(ctx context.Context, pool *pgxpool.Pool, sets ...migrate.Set) error {
	return over(pool, func(db *sql.DB) error { return migrate.Up(ctx, db, migrate.Postgres, sets...) })
}

// UpIn is migrate.In(schema).Up over the application's pool.
func UpIn(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	return over(pool, func(db *sql.DB) error { return migrate.In(schema).Up(ctx, db, migrate.Postgres) })
}

func over(pool *pgxpool.Pool, f func(db *sql.DB) error) error {
	if pool == nil {
		return errors.New("dblock: migrate: the pool is nil")
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	return f(db)
}
