package riverlock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	prefix = "jobs"
	// patience is how long a test waits for what must happen.
	patience = 40 * time.Second
)

var silent = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if os.Getenv(childDSN) != "" {
		work()
		return
	}
	os.Exit(m.Run())
}

// kind is a kind of database that River has a driver for.
type kind struct {
	driver string // of database/sql
	engine migrate.Engine
	new    func(db *sql.DB) dblock.Engine[*sql.Tx]
	queue  func(ctx context.Context, dsn string, config *river.Config) (queue, error)
	server string // the environment variable with its DSN; "": it needs none
	now    string // an expression of SQL, in milliseconds
}

var kinds = map[string]kind{
	"sqlite": {
		"sqlite", migrate.SQLite, newSQLite, queueOnSQLite, "",
		"CAST((julianday('now') - 2440587.5) * 86400000 AS integer)",
	},
	"postgres": {
		"pgx", migrate.Postgres, newPostgres, queueOnPostgres, "DBLOCK_TEST_POSTGRES_DSN",
		"CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
	},
}

func newSQLite(db *sql.DB) dblock.Engine[*sql.Tx] { return sqlite.New(db) }

func newPostgres(db *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(db) }

// queue is a River client with a pool of its own.
type queue struct {
	worker
	migrate func(ctx context.Context) error
	close   func()
}

// worker is a river.Client, without the type of its transactions.
type worker interface {
	Insert(ctx context.Context, args river.JobArgs, opts *river.InsertOpts) (*rivertype.JobInsertResult, error)
	Start(ctx context.Context) error
	StopAndCancel(ctx context.Context) error
	Subscribe(kinds ...river.EventKind) (<-chan *river.Event, func())
}

func queueOnSQLite(_ context.Context, dsn string, config *river.Config) (queue, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return queue{}, err
	}
	db.SetMaxOpenConns(1) // as River's driver wants it
	return newQueue(riversqlite.New(db), config, func() { _ = db.Close() })
}

func queueOnPostgres(ctx context.Context, dsn string, config *river.Config) (queue, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return queue{}, err
	}
	return newQueue(riverpgxv5.New(pool), config, pool.Close)
}

func newQueue[TX any](d riverdriver.Driver[TX], config *river.Config, close func()) (queue, error) {
	client, err := river.NewClient(d, config)
	if err != nil {
		close()
		return queue{}, err
	}
	return queue{client, func(ctx context.Context) error {
		migrator, err := rivermigrate.New(d, &rivermigrate.Config{Logger: config.Logger})
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		return err
	}, close}, nil
}

// database is one of a kind that a test has for itself, with the tables of dblock and River.
type database struct {
	kind
	name, dsn string
}

// each runs a test on every kind that is there: SQLite, and the server that the environment names.
func each(t *testing.T, test func(t *testing.T, d database)) {
	only := os.Getenv("DBLOCK_TEST_ONLY")
	for name, k := range kinds {
		if k.server != "" && os.Getenv(k.server) == "" || only != "" && !slices.Contains(strings.Split(only, ","),
			name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := database{k, name, k.create(t)}
			db := d.open(t)
			d.migrate(t)
			require.NoError(t, d.river(t, &river.Config{Logger: silent}).migrate(t.Context()))
			if _, err := db.ExecContext(t.Context(),
				"CREATE TABLE worked (job bigint, pid bigint, began bigint, ended bigint)"); err != nil {
				t.Fatal(err)
			}
			test(t, d)
		})
	}
}

// create makes a database for the test, and returns its data source.
func (k kind) create(t *testing.T) string {
	if k.server == "" {
		return "file:" + filepath.Join(t.TempDir(), "app.db") +
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
	}
	dsn := os.Getenv(k.server)
	server, err := sql.Open(k.driver, dsn)
	require.NoError(t, err)
	name := fmt.Sprintf("dblock_river_%d", rand.Uint64())
	require.NoError(t, require.ErrOf(server.ExecContext(t.Context(), "CREATE DATABASE "+name)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, assert.ErrOf(server.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")))
		_ = server.Close()
	})
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// river is a River client that is closed with the test.
func (d database) river(t *testing.T, config *river.Config) queue {
	q, err := d.queue(context.Background(), d.dsn, config)
	require.NoError(t, err)
	t.Cleanup(q.close)
	return q
}

// migrate makes dblock's tables.
func (d database) migrate(t *testing.T) {
	require.NoError(t, migrate.Up(t.Context(), d.open(t), d.engine))
}

func (d database) open(t *testing.T) *sql.DB {
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d database) client(t *testing.T) *dblock.Client[*sql.Tx] {
	c, err := dblock.New(d.new(d.open(t)), dblock.WithTTL(time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}
