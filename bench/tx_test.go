package bench

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// BenchmarkLockTx is a transaction that locks a name and updates a row, against one that locks the
// row itself with SELECT … FOR UPDATE, in turns. BenchmarkGuard is one that is guarded and updates
// a row, against one that only updates. On SQLite nothing locks a row: there the reference of
// LockTx begins with a write, which locks the database.
func BenchmarkLockTx(b *testing.B) {
	each(b, func(b *testing.B, k kind) { benchmarkTx(b, k, true) })
}

func BenchmarkGuard(b *testing.B) {
	each(b, func(b *testing.B, k kind) { benchmarkTx(b, k, false) })
}

func benchmarkTx(b *testing.B, k kind, lock bool) {
	a := k.create(b).mustOpen(b, 5, nil)
	switch k.engine {
	case migrate.Postgres:
		runTx(b, postgres.New(a.pgx), lock, true, func(ctx context.Context) (pgx.Tx, error) { return a.pgx.Begin(ctx) },
			func(ctx context.Context, tx pgx.Tx, statement string) error {
				_, err := tx.Exec(ctx, statement)
				return err
			}, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) })
	case migrate.MySQL:
		runTx(b, mysql.New(a.db), lock, true, a.begin, execTx, commitTx)
	case migrate.SQLite:
		runTx(b, sqlite.New(a.db), lock, false, a.begin, execTx, commitTx)
	}
}

func (a *app) begin(ctx context.Context) (*sql.Tx, error) { return a.db.BeginTx(ctx, nil) }

func execTx(ctx context.Context, tx *sql.Tx, statement string) error {
	_, err := tx.ExecContext(ctx, statement)
	return err
}

func commitTx(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

// runTx measures transactions of one kind. Statements have no parameters, so that each is one round
// trip everywhere.
func runTx[TX any](
	b *testing.B, engine dblock.Engine[TX], lock, locksRows bool, begin func(context.Context) (TX, error),
	exec func(context.Context, TX, string) error, commit func(context.Context, TX) error,
) {
	ctx := b.Context()
	client, err := dblock.New(engine, dblock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b, err)
	defer client.Close(context.WithoutCancel(ctx))
	held, err := client.Lock(ctx, "guarded")
	require.NoError(b, err)
	update := func(tx TX, i int) error {
		return exec(ctx, tx, fmt.Sprintf("UPDATE bench_rows SET n = n + 1 WHERE id = %d", i%rows))
	}
	transact := func(i int, first func(tx TX) error) error {
		tx, err := begin(ctx)
		if err != nil {
			return err
		}
		if err := first(tx); err != nil {
			return err
		}
		if err := update(tx, i); err != nil {
			return err
		}
		return commit(ctx, tx)
	}
	subject := func(i int) error {
		return transact(i, func(tx TX) error {
			if lock {
				return client.LockTx(ctx, tx, fmt.Sprintf("name/%d", i%100))
			}
			return client.Guard(ctx, tx, held)
		})
	}
	reference := func(i int) error {
		return transact(i, func(tx TX) error {
			switch {
			case lock && locksRows:
				return exec(ctx, tx, fmt.Sprintf("SELECT n FROM bench_rows WHERE id = %d FOR UPDATE", i%rows))
			case lock:
				return exec(ctx, tx, "UPDATE bench_rows SET n = n WHERE id = 0")
			}
			return nil
		})
	}
	for i := range 120 { // rows inserted, statements prepared
		for _, f := range []func(int) error{subject, reference} {
			require.NoError(b, f(i))
		}
	}
	var ours, theirs []time.Duration
	for i := 0; b.Loop(); i++ {
		ours = append(ours, timed(b, subject, i))
		theirs = append(theirs, timed(b, reference, i))
	}
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(float64(quantile(ours, 0.5))/float64(quantile(theirs, 0.5)), "p50-ratio")
	b.ReportMetric(micros(quantile(ours, 0.5)), "p50-µs")
	b.ReportMetric(micros(quantile(theirs, 0.5)), "p50-reference-µs")
}
