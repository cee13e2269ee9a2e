package riverlock_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
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
	os.Exit(dbtest.Run(m))
}

// kind is a kind of database that River has a driver for.
type kind struct {
	driver string // of database/sql
	new    func(db *sql.DB) dblock.Engine[*sql.Tx]
	queue  func(ctx context.Context, dsn string, config *river.Config) (queue, error)
	now    string // an expression of SQL, in milliseconds
}

var kinds = map[string]kind{
	dbtest.KindSQLite: {"sqlite", sqlite.New, queueOnSQLite,
		"CAST((julianday('now') - 2440587.5) * 86400000 AS integer)"},
	dbtest.KindPostgres: {"pgx", newPostgres, queueOnPostgres,
		"CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"},
}

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

// database is one of a kind that a test has for itself, with the tables of dblock.
type database struct {
	kind
	name, dsn string
}

func newDatabase(t *testing.T, name string) database {
	dsn := dbtest.Migrated(t, name).DSN
	if name == dbtest.KindSQLite {
		dsn += "&_txlock=immediate" // as River's driver wants it
	}
	return database{kinds[name], name, dsn}
}

// each runs a test on every kind, with the tables of River, too.
func each(t *testing.T, test func(t *testing.T, d database)) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, name)
			require.NoError(t, d.river(t, &river.Config{Logger: silent}).migrate(t.Context()))
			require.NoError(t, require.ErrOf(d.open(t).ExecContext(t.Context(),
				"CREATE TABLE worked (job bigint, pid bigint, began bigint, ended bigint)")))
			test(t, d)
		})
	}
}

// river is a River client that is closed with the test.
func (d database) river(t *testing.T, config *river.Config) queue {
	q, err := d.queue(context.Background(), d.dsn, config)
	require.NoError(t, err)
	t.Cleanup(q.close)
	return q
}

func (d database) open(t *testing.T) *sql.DB {
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d database) client(t *testing.T) *dblock.Client[*sql.Tx] {
	c, err := dblock.New(d.new(d.open(t)), dblock.WithTTL(10*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}
