package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// rows is how many rows the reference table has.
const rows = 1000

// kind is a kind of database. Its DSN comes from the environment; SQLite needs none.
type kind struct {
	name        string
	engine      migrate.Engine
	driver, env string
}

var kinds = []kind{
	{"sqlite", migrate.SQLite, "sqlite", ""},
	{"postgres", migrate.Postgres, "pgx", "DBLOCK_BENCH_POSTGRES_DSN"},
	{"mysql", migrate.MySQL, "mysql", "DBLOCK_BENCH_MYSQL_DSN"},
	{"mariadb", migrate.MySQL, "mysql", "DBLOCK_BENCH_MARIADB_DSN"},
}

// database is a fresh database with dblock's tables and the reference table.
type database struct {
	kind
	name, dsn string
}

// each runs a benchmark on every kind of database that there is a DSN for.
func each(b *testing.B, f func(b *testing.B, k kind)) {
	for _, k := range kinds {
		if k.env == "" || os.Getenv(k.env) != "" {
			b.Run(k.name, func(b *testing.B) { f(b, k) })
		}
	}
}

// eachSize runs a benchmark on every kind of database with a number of things: with some numbers,
// and with DBLOCK_BENCH_SCALE=1 also with the large ones.
func eachSize(b *testing.B, things string, numbers, large []int, f func(b *testing.B, k kind, n int)) {
	if os.Getenv("DBLOCK_BENCH_SCALE") != "" {
		numbers = slices.Concat(numbers, large)
	}
	for _, n := range numbers {
		b.Run(fmt.Sprintf("%s=%d", things, n), func(b *testing.B) {
			each(b, func(b *testing.B, k kind) {
				for b.Loop() {
					f(b, k, n)
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// create makes a database that goes with the benchmark.
func (k kind) create(b testing.TB) database {
	b.Helper()
	d := database{kind: k, name: "bench_" + strings.ToLower(rand.Text()[:12])}
	if k.env == "" {
		// FULL, as the servers run with fsync: every commit of the reference reaches the disk, and
		// ours too.
		d.dsn = "file:" + filepath.Join(b.TempDir(), "bench.db") +
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	} else {
		admin := k.admin(b)
		require.NoError(b, require.ErrOf(admin.Exec("CREATE DATABASE "+d.name)))
		b.Cleanup(func() {
			drop := "DROP DATABASE " + d.name
			if k.engine == migrate.Postgres {
				drop += " WITH (FORCE)"
			}
			assert.NoError(b, assert.ErrOf(admin.Exec(drop)))
			_ = admin.Close()
		})
		var err error
		if d.dsn, err = withDatabase(k.engine, os.Getenv(k.env), d.name); err != nil {
			b.Fatal(err)
		}
	}
	db, err := sql.Open(k.driver, d.dsn)
	require.NoError(b, err)
	defer db.Close()
	require.NoError(b, errors.Join(migrate.Up(context.Background(), db, k.engine), reference(db, k)))
	return d
}

func (k kind) admin(b testing.TB) *sql.DB {
	b.Helper()
	db, err := sql.Open(k.driver, os.Getenv(k.env))
	require.NoError(b, err)
	return db
}

// reference makes the table of which a single row is updated, with the room for updates in place
// that dblock's tables have as well.
func reference(db *sql.DB, k kind) error {
	table := "CREATE TABLE bench_rows (id integer NOT NULL PRIMARY KEY, n bigint NOT NULL)"
	if k.engine == migrate.Postgres {
		table += " WITH (fillfactor = 50)"
	}
	values := make([]string, rows)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 0)", i)
	}
	for _, statement := range []string{table, "INSERT INTO bench_rows (id, n) VALUES " + strings.Join(values, ", ")} {
		if _, err := db.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

func withDatabase(engine migrate.Engine, dsn, name string) (string, error) {
	if engine == migrate.MySQL {
		config, err := mysqldriver.ParseDSN(dsn)
		if err != nil {
			return "", err
		}
		config.DBName = name
		return config.FormatDSN(), nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// connections counts the database's connections on its server, without the one that asks.
func (d database) connections(b testing.TB, a *app) int {
	b.Helper()
	query := "SELECT count(*) FROM information_schema.processlist WHERE db = ?"
	switch d.engine {
	case migrate.SQLite:
		return a.db.Stats().OpenConnections
	case migrate.Postgres:
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'"
	}
	admin := d.admin(b)
	defer admin.Close()
	var n int
	require.NoError(b, admin.QueryRow(query, d.name).Scan(&n))
	return n
}

// TestVersions prints what the figures are of.
func TestVersions(t *testing.T) {
	for _, k := range kinds {
		query := "SELECT concat(version(), ', innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit, " +
			"', sync_binlog=', @@sync_binlog)"
		db := (*sql.DB)(nil)
		switch {
		case k.engine == migrate.SQLite:
			d := k.create(t)
			var err error
			if db, err = sql.Open(k.driver, d.dsn); err != nil {
				t.Fatal(err)
			}
			query = "SELECT sqlite_version() || ', WAL, synchronous=FULL'"
		case os.Getenv(k.env) == "":
			continue
		default:
			db = k.admin(t)
		}
		if k.engine == migrate.Postgres {
			query = `SELECT current_setting('server_version') || ', fsync=' || current_setting('fsync') ||
				', synchronous_commit=' || current_setting('synchronous_commit')`
		}
		var version string
		require.NoError(t, db.QueryRow(query).Scan(&version))
		_ = db.Close()
		fmt.Printf("server %s %s\n", k.name, version)
	}
}
