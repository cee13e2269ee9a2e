// Package migratepgx makes dblock's tables over a pool of pgx. It is package migrate, which knows
// database/sql alone, so that builds for other servers have nothing of pgx.
package migratepgx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/migrate"
)

// Up is migrate.Up over the application's pool, of which it uses one connection, and which it never
// closes. Default: migrate.Locks; migrate.Locks.In names their schema.
func Up(ctx context.Context, pool *pgxpool.Pool, sets ...migrate.Set) error {
	if pool == nil {
		return errors.New("dblock: migrate: the pool is nil")
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	return migrate.Up(ctx, db, migrate.Postgres, sets...)
}
