package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/postgres"
)

// role makes a role of the database's name, which stands for ? in statements, and returns a pool of
// its own.
func role(t *testing.T, db dbtest.Database, limits string, statements ...string) *pgxpool.Pool {
	t.Helper()
	dsn, err := url.Parse(db.DSN)
	require.NoError(t, err)
	name, super := strings.TrimPrefix(dsn.Path, "/"), db.SQL(t)
	exec := func(statements ...string) {
		for _, statement := range statements {
			require.NoError(t, require.ErrOf(super.Exec(strings.ReplaceAll(statement, "?", name))), statement)
		}
	}
	exec(append([]string{"CREATE ROLE ? LOGIN PASSWORD 'x' " + limits}, statements...)...)
	t.Cleanup(func() { exec("DROP OWNED BY ?", "DROP ROLE ?") })
	dsn.User = url.UserPassword(name, "x")
	pool, err := pgxpool.New(t.Context(), dsn.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A role that may have no further connection has nobody in its way: the error names the limit.
func TestARoleWithTooFewConnections(t *testing.T) {
	pool := role(t, dbtest.Migrated(t, dbtest.KindPostgres), "CONNECTION LIMIT 1",
		"GRANT ALL ON ALL TABLES IN SCHEMA public TO ?")
	only, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer only.Release()
	client := clientOf(t, postgres.New(pool))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = client.TryLock(ctx, "n")
	if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), "too many connections for role") {
		t.Errorf("%v", err)
	}
	assert.NoError(t, client.Close(ctx))
}

// A role without any right but to connect.
func TestAdvisoryLocksNeedNoRights(t *testing.T) {
	pool := role(t, dbtest.Empty(t, dbtest.KindPostgres), "", "REVOKE ALL ON DATABASE ? FROM PUBLIC",
		"REVOKE ALL ON SCHEMA public FROM PUBLIC", "GRANT CONNECT ON DATABASE ? TO ?")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	one, other := advisory(t, pool), advisory(t, pool)
	held, err := one.Lock(ctx, "n")
	require.NoError(t, err)
	assert.ErrorIs(t, assert.ErrOf(other.TryLock(ctx, "n")), dblock.ErrNotAcquired)
	got := make(chan error, 1)
	go func() {
		got <- other.Do(ctx, "n", func(context.Context, dblock.Handle) error { return nil }, dblock.Shared())
	}()
	assert.NoError(t, held.Unlock(ctx))
	assert.NoError(t, <-got)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	assert.NoError(t, one.LockTx(ctx, tx, "n"))
}
