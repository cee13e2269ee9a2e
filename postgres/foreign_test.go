package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a session that opens wherever the protocol is spoken.
func TestAServerThatOnlySpeaksTheProtocolIsRefused(t *testing.T) {
	db := dbtest.Postgres(t)
	if _, err := db.Pool(t).Exec(t.Context(), `CREATE SCHEMA pretend;
		CREATE FUNCTION pretend.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v23.1.11' $$`); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["search_path"] = "pretend, public, pg_catalog"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = newClient(t, New(pool)).Lock(t.Context(), "n")
	if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(), "CockroachDB") {
		t.Errorf("%v", err)
	}
	if _, err = newClient(t, New(pool, AnyServer())).Lock(t.Context(), "n"); err != nil {
		t.Errorf("%v", err)
	}
	own, err := Advisory(pool)
	require.NoError(t, err)
	defer own.Close(t.Context())
	if _, err = own.Lock(t.Context(), "n"); !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
		"CockroachDB") {
		t.Errorf("%v", err)
	}
}
