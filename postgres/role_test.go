package postgres_test

import (
	"context"
	"errors"
	"fmt"
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

// A role that may have no further connection has nobody in its way: the error names the limit.
func TestARoleWithTooFewConnections(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.KindPostgres)
	role := fmt.Sprintf("narrow_%d", time.Now().UnixNano())
	super := db.SQL(t)
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'p' CONNECTION LIMIT 1",
		"GRANT ALL ON ALL TABLES IN SCHEMA public TO " + role,
	} {
		require.NoError(t, require.ErrOf(super.ExecContext(t.Context(), statement)))
	}
	t.Cleanup(func() { _, _ = super.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	dsn, err := url.Parse(db.DSN)
	require.NoError(t, err)
	dsn.User = url.UserPassword(role, "p")
	pool, err := pgxpool.New(t.Context(), dsn.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	only, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer only.Release()

	client, err := dblock.New(postgres.New(pool))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = client.TryLock(ctx, "n")
	if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), "too many connections for role") {
		t.Errorf("%v", err)
	}
	assert.NoError(t, client.Close(ctx))
}
