package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kind is a kind of database.
type kind struct {
	driver  string // of database/sql
	engine  migrate.Engine
	dialect goose.Dialect
	new     func(db *sql.DB) dblock.Engine[*sql.Tx]
	dsn     string // the environment variable of a server; "": it needs none
}

var kinds = map[string]kind{
	"sqlite":   {"sqlite", migrate.SQLite, goose.DialectSQLite3, sqlite.New, ""},
	"postgres": {"pgx", migrate.Postgres, goose.DialectPostgres, newPostgres, "DBLOCK_TEST_POSTGRES_DSN"},
	"mysql":    {"mysql", migrate.MySQL, goose.DialectMySQL, newMySQL, "DBLOCK_TEST_MYSQL_DSN"},
	"mariadb":  {"mysql", migrate.MySQL, goose.DialectMySQL, newMySQL, "DBLOCK_TEST_MARIADB_DSN"},
}

func newPostgres(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }

func newMySQL(db *sql.DB) dblock.Engine[*sql.Tx] { return dblockmysql.New(db) }

// database is one of a kind that a test has for itself, with dblock's tables.
type database struct {
	kind
	name string // of its data source
}

// each runs a test on every kind that is there: SQLite, and the servers that the environment names.
func each(t *testing.T, test func(t *testing.T, d database)) {
	only := os.Getenv("DBLOCK_TEST_ONLY")
	for name, k := range kinds {
		if k.dsn != "" && os.Getenv(k.dsn) == "" || only != "" && !slices.Contains(strings.Split(only, ","), name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := database{k, k.create(t)}
			require.NoError(t, migrate.Up(t.Context(), d.open(t), k.engine))
			test(t, d)
		})
	}
}

// create makes a database for the test, and returns its data source.
func (k kind) create(t *testing.T) string {
	if k.dsn == "" {
		return "file:" + filepath.Join(t.TempDir(), "app.db") +
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	}
	dsn := os.Getenv(k.dsn)
	server, err := sql.Open(k.driver, dsn)
	require.NoError(t, err)
	name := fmt.Sprintf("dblock_goose_%d", rand.Uint64())
	require.NoError(t, require.ErrOf(server.ExecContext(t.Context(), "CREATE DATABASE "+name)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		assert.NoError(t, assert.ErrOf(server.ExecContext(ctx, "DROP DATABASE "+name)))
		_ = server.Close()
	})
	if k.driver == "mysql" {
		config, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		config.DBName = name
		return config.FormatDSN()
	}
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

func (d database) open(t *testing.T) *sql.DB {
	db, err := sql.Open(d.driver, d.name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func (d database) client(t *testing.T, db *sql.DB) *dblock.Client[*sql.Tx] {
	c, err := dblock.New(d.new(db), dblock.WithTTL(5*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}
