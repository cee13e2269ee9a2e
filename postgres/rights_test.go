package postgres_test

import (
	"context"
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

// A role without any right but to connect.
func TestAdvisoryLocksNeedNoRights(t *testing.T) {
	db := dbtest.Empty(t, dbtest.KindPostgres)
	super := db.SQL(t)
	dsn, err := url.Parse(db.DSN)
	require.NoError(t, err)
	name := strings.TrimPrefix(dsn.Path, "/")
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			require.NoError(t, require.ErrOf(super.Exec(statement)), statement)
		}
	}
	exec("REVOKE ALL ON DATABASE "+name+" FROM PUBLIC", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
		"CREATE ROLE "+name+" LOGIN PASSWORD 'x'", "GRANT CONNECT ON DATABASE "+name+" TO "+name)
	t.Cleanup(func() { exec("DROP OWNED BY "+name, "DROP ROLE "+name) })
	dsn.User = url.UserPassword(name, "x")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, dsn.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var clients [2]*postgres.AdvisoryClient
	for i := range clients {
		clients[i] = advisory(t, pool)
	}
	held, err := clients[0].Lock(ctx, "n")
	require.NoError(t, err)
	assert.ErrorIs(t, assert.ErrOf(clients[1].TryLock(ctx, "n")), dblock.ErrNotAcquired)
	got := make(chan error, 1)
	go func() {
		next, err := clients[1].Lock(ctx, "n", dblock.Shared())
		if err == nil {
			err = next.Unlock(ctx)
		}
		got <- err
	}()
	assert.NoError(t, held.Unlock(ctx))
	assert.NoError(t, <-got)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	assert.NoError(t, clients[0].LockTx(ctx, tx, "n"))
}
