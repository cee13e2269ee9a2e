package migratepgx_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrate/migratepgx"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestTheTablesComeOverAPoolOfPgxWhichStaysOpen(t *testing.T) {
	ctx := t.Context()
	pool := dbtest.Empty(t, dbtest.KindPostgres).Pool(t)
	for range 2 {
		require.NoError(t, migratepgx.Up(ctx, pool, migrate.Locks, migrate.Fences))
		require.NoError(t, migratepgx.Up(ctx, pool, migrate.Locks.In("locks")))
	}
	for _, engine := range []dblock.Engine[pgx.Tx]{postgres.New(pool), postgres.New(pool, postgres.Schema("locks"))} {
		client, err := dblock.New(engine)
		require.NoError(t, err)
		defer client.Close(context.Background())
		assert.NoError(t, assert.ErrOf(client.TryLock(ctx, "n")))
	}
	assert.Error(t, migratepgx.Up(ctx, nil), "a nil pool")
}
