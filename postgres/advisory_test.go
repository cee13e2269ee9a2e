package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/postgres"
)

var _ dblock.Locker = (*postgres.AdvisoryClient)(nil)

// advisory makes a client of an application named orders.
func advisory(t *testing.T, pool *pgxpool.Pool) *postgres.AdvisoryClient {
	t.Helper()
	c, err := postgres.Advisory(pool, postgres.AdvisoryApp("orders"), postgres.AdvisoryTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

func TestAdvisoryRefusesBadInput(t *testing.T) {
	assert.ErrorIs(t, assert.ErrOf(postgres.Advisory(nil)), dblock.ErrConfig)
	pool := dbtest.Empty(t, dbtest.KindPostgres).Pool(t)
	for what, option := range map[string]postgres.AdvisoryOption{
		"zero": {}, "a TTL of nothing": postgres.AdvisoryTTL(0),
		"a TTL of two days": postgres.AdvisoryTTL(48 * time.Hour),
		"no name":           postgres.AdvisoryApp(""), "no logger": postgres.AdvisoryLogger(nil),
	} {
		assert.ErrorIs(t, assert.ErrOf(postgres.Advisory(pool, option)), dblock.ErrInvalidOption, what)
	}
	assert.NoError(t, assert.ErrOf(postgres.Advisory(pool, postgres.AdvisoryLogger(slog.New(slog.DiscardHandler)))))
}

func TestAdvisoryLocksOfTransactions(t *testing.T) {
	pool := dbtest.Empty(t, dbtest.KindPostgres).Pool(t)
	a, b := advisory(t, pool), advisory(t, pool)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	is := func(err, want error) {
		t.Helper()
		assert.ErrorIs(t, err, want)
	}
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	is(a.LockTx(ctx, nil, "n"), dblock.ErrInvalidOption)
	is(a.LockTx(ctx, tx, "n", ""), dblock.ErrInvalidName)
	is(a.LockTx(ctx, tx), dblock.ErrInvalidOption)
	held, err := b.Lock(ctx, "also")
	require.NoError(t, err)
	is(a.TryLockTx(ctx, tx, "n", "also"), dblock.ErrNotAcquired)
	brief, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	err = a.LockTx(brief, tx, "also")
	stop()
	is(err, dblock.ErrNotAcquired)
	is(err, context.DeadlineExceeded)
	got := make(chan error, 1)
	go func() { got <- a.LockTx(ctx, tx, "n", "also") }() // and the transaction is as usable as before
	is(held.Unlock(ctx), nil)
	is(<-got, nil)
	for _, name := range []string{"n", "also"} {
		is(assert.ErrOf(b.TryLock(ctx, name, dblock.Shared())), dblock.ErrNotAcquired)
	}
	is(tx.Commit(ctx), nil)
	reader, err := b.Lock(ctx, "n", dblock.Shared())
	require.NoError(t, err)
	if tx, err = pool.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	is(a.LockSharedTx(ctx, tx, "n"), nil)
	waiting := make(chan error, 1)
	go func() {
		tx, err := pool.Begin(ctx)
		if err == nil {
			defer tx.Rollback(ctx)
			err = a.LockTx(ctx, tx, "n")
		}
		waiting <- err
	}()
	for err = nil; err == nil; { // a waiter holds back later requests
		var l dblock.Handle
		if l, err = b.TryLock(ctx, "n", dblock.Shared()); err == nil {
			is(l.Unlock(ctx), nil)
		}
	}
	is(err, dblock.ErrNotAcquired)
	is(a.Close(ctx), nil)
	is(<-waiting, dblock.ErrClosed)
	is(a.LockTx(ctx, tx, "n"), dblock.ErrClosed)
	is(tx.Rollback(ctx), nil)
	is(reader.Unlock(ctx), nil)
}
