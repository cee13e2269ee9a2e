package orm

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	gormsqlite "github.com/glebarez/sqlite"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// database is one with dblock's tables, and an account of 100.
type database struct {
	engine   Engine
	driver   string // of database/sql
	dsn      string
	byItself bool // a client hears of its grants whatever the driver
	bun      schema.Dialect
	ent      string
}

// each runs a test with each library, on each database.
func each(t *testing.T, test func(t *testing.T, d database, a app)) {
	for name, create := range map[string]func(*testing.T) database{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			if name == "postgres" && os.Getenv("DBLOCK_TEST_POSTGRES_DSN") == "" {
				t.Skip("DBLOCK_TEST_POSTGRES_DSN names no server")
			}
			for library, open := range map[string]func(*testing.T, database) app{
				"gorm":                  func(t *testing.T, d database) app { return d.gorm(t, false) },
				"gorm with PrepareStmt": func(t *testing.T, d database) app { return d.gorm(t, true) },
				"bun":                   func(t *testing.T, d database) app { return Bun{bun.NewDB(d.open(t), d.bun)} },
				"sqlx": func(t *testing.T, d database) app {
					return Sqlx{sqlx.NewDb(d.open(t),
						d.driver)}
				},
				"ent": func(t *testing.T,
					d database) app {
					return Ent{entsql.OpenDB(d.ent, d.open(t))}
				},
				"lib/pq": func(t *testing.T,
					d database) app {
					d.driver = "postgres"
					return SQL{d.open(t)}
				},
			} {
				if library == "lib/pq" && name != "postgres" {
					continue
				}
				t.Run(library, func(t *testing.T) {
					d := create(t)
					test(t, d, open(t, d))
				})
			}
		})
	}
}

func onSQLite(t *testing.T) database {
	d := database{engine: sqlite.New, driver: "sqlite", byItself: true, bun: sqlitedialect.New(), ent: dialect.SQLite}
	d.dsn = "file:" + filepath.Join(t.TempDir(), "bank.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)"
	d.prepare(t, migrate.SQLite)
	return d
}

func onPostgres(t *testing.T) database {
	d := database{engine: func(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }, driver: "pgx",
		bun: pgdialect.New(), ent: dialect.Postgres}
	server, err := url.Parse(os.Getenv("DBLOCK_TEST_POSTGRES_DSN"))
	require.NoError(t, err)
	admin, err := sql.Open("pgx", server.String())
	require.NoError(t, err)
	name := "orm_" + strings.ToLower(rand.Text()[:12])
	require.NoError(t, require.ErrOf(admin.ExecContext(t.Context(), "CREATE DATABASE "+name)))
	t.Cleanup(func() {
		assert.NoError(t, assert.ErrOf(admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")))
		_ = admin.Close()
	})
	server.Path = "/" + name
	d.dsn = server.String()
	d.prepare(t, migrate.Postgres)
	return d
}

func (d database) prepare(t *testing.T, engine migrate.Engine) {
	t.Helper()
	db := d.open(t)
	require.NoError(t, migrate.Up(t.Context(), db, engine))
	for _, statement := range []string{
		"CREATE TABLE accounts (id text NOT NULL PRIMARY KEY, balance bigint NOT NULL)",
		"INSERT INTO accounts (id, balance) VALUES ('alice', 100)",
	} {
		require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), statement)))
	}
}

// open opens a pool, which is closed when the test has ended.
func (d database) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// gorm opens a pool as gorm's drivers do.
func (d database) gorm(t *testing.T, prepare bool) app {
	t.Helper()
	open := gormpostgres.Open
	if d.ent == dialect.SQLite {
		open = gormsqlite.Open
	}
	db, err := gorm.Open(open(d.dsn), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	require.NoError(t, err)
	t.Cleanup(func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
	})
	return Gorm{db}
}
