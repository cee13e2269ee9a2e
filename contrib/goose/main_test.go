package gooselock_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// database is one that a test has for itself, with dblock's tables.
type database struct{ dbtest.Database }

func each(t *testing.T, test func(t *testing.T, d database)) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		test(t, database{db})
	})
}

// provider is that of a process of its own.
func (d database) provider(t *testing.T, db *sql.DB, options ...goose.ProviderOption) *goose.Provider {
	dialect := goose.Dialect(d.Engine)
	if d.Engine == migrate.SQLite {
		dialect = goose.DialectSQLite3
	}
	p, err := goose.NewProvider(dialect, db, migrations, options...)
	require.NoError(t, err)
	return p
}

func (d database) client(t *testing.T, db *sql.DB) *dblock.Client[*sql.Tx] {
	engine := map[migrate.Engine]dblock.Engine[*sql.Tx]{
		migrate.Postgres: postgres.NewSQL(db), migrate.MySQL: mysql.New(db), migrate.SQLite: sqlite.New(db),
	}[d.Engine]
	c, err := dblock.New(engine, dblock.WithTTL(5*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}
