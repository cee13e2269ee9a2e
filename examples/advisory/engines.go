package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/postgres"
)

const (
	readNumber = "SELECT n FROM " + table
	whoHasIt   = `SELECT pid, mode FROM pg_locks WHERE locktype = 'advisory' AND granted AND (classid::int8 << 32 | objid::int8) = $1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

func pgxTransaction(pool *pgxpool.Pool) func(context.Context, func(pgx.Tx) error) error {
	return func(ctx context.Context, f func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, f) }
}

func countPgx(ctx context.Context, tx pgx.Tx) (n int, err error) {
	if err := tx.QueryRow(ctx, readNumber).Scan(&n); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET n = %d", table, n+1))
	return n + 1, err
}

// showLock prints the lock as every client that knows the key can see it.
func showLock(ctx context.Context, pool *pgxpool.Pool) error {
	key := postgres.AdvisoryKey(name)
	var pid int
	var mode string
	if err := pool.QueryRow(ctx, whoHasIt, key).Scan(&pid, &mode); err != nil {
		return err
	}
	fmt.Printf("  pg_locks: key %d, %s, backend %d\n", key, mode, pid)
	return nil
}

// cutConnection ends the server connection that has the lock, if there is one.
func cutConnection(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+whoHasIt+") held", postgres.AdvisoryKey(name))
	return err
}

func sqlTransaction(db *sql.DB) func(context.Context, func(*sql.Tx) error) error {
	return func(ctx context.Context, f func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
}

func countSQL(ctx context.Context, tx *sql.Tx) (n int, err error) {
	if err := tx.QueryRowContext(ctx, readNumber).Scan(&n); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET n = %d", table, n+1))
	return n + 1, err
}
