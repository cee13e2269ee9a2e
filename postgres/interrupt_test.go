package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/dbtest"
)

// atBatch calls what is in the context at the start of a batch, before pgx has prepared anything
// for it.
type atBatch struct{}

type atBatchKey struct{}

func (atBatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if cancel, ok := ctx.Value(atBatchKey{}).(context.CancelFunc); ok {
		cancel()
	}
	return ctx
}
func (atBatch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (atBatch) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (atBatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (atBatch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Broken by asking the server to cancel before the savepoint is known to be there: what it hits
// then are the statements that pgx prepares for the batch, and with them the caller's transaction.
// Where it hits is chance: 30 connections.
func TestAContextThatEndsWhileStatementsArePreparedAbortsNothing(t *testing.T) {
	db := dbtest.Postgres(t)
	config, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = atBatch{}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	engine := New(pool)
	if _, err := pool.Exec(t.Context(), "INSERT INTO dblock_locks (name, token, acquired_at) VALUES ('n', 1, 1)"); err != nil {
		t.Fatal(err)
	}
	holder := db.SQL(t)
	other, err := holder.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.ExecContext(t.Context(), "SELECT FROM dblock_locks WHERE name = 'n' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	none := func(string, int, any) bool { return false }
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { // from then on statements go with their savepoint
		_, _, err := engine.Transactions.LockTx(t.Context(), tx, "m", none, true, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		pool.Reset()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ctx = context.WithValue(ctx, atBatchKey{}, cancel)
		if _, locked, err := engine.Transactions.LockTx(ctx, tx, "n", none, true, nil); locked || err == nil {
			t.Errorf("locked %v, %v", locked, err)
		}
		cancel()
		if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("the transaction: %v", err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
