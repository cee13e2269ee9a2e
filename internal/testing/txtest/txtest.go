// Package txtest runs a scripted test in transactions of every kind that an application can have:
// on every engine, of every library, at every isolation level. Only tests import it.
package txtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// limit is how long anything may take.
const limit = 10 * time.Second

// World is one kind of transaction in one database.
type World struct {
	dbtest.Database
	DB    *sql.DB
	Level sql.IsolationLevel
	pool  *pgxpool.Pool // nil: through database/sql
}

// Each runs f in every world, with the tables of some sets and one table more, app_rows. The worlds
// of one engine share a database, so that f needs names of its own: w.Name.
func Each(t *testing.T, f func(t *testing.T, w World), sets ...migrate.Set) {
	t.Helper()
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		w := New(t, db, sets...)
		run := func(library string) {
			for _, w.Level = range levels[db.Engine] {
				t.Run(library+strings.ReplaceAll(w.Level.String(), " ", ""), func(t *testing.T) { f(t, w) })
			}
		}
		run("")
		if db.Kind == dbtest.KindPostgres {
			w.pool = db.Pool(t)
			run("pgx")
		}
	})
}

// New is a world at the engine's default level, through database/sql.
func New(t *testing.T, db dbtest.Database, sets ...migrate.Set) World {
	t.Helper()
	w := World{Database: db, DB: db.SQL(t)}
	if len(sets) > 0 {
		ok(t, migrate.Up(t.Context(), w.DB, db.Engine, sets...))
	}
	_, err := w.DB.ExecContext(t.Context(), "CREATE TABLE app_rows (n int)")
	ok(t, err)
	return w
}

// In is a world at the engine's default level in a database that has its tables, through
// database/sql or with a pool of pgx.
func In(t *testing.T, db dbtest.Database, pgx bool) World {
	t.Helper()
	w := World{Database: db, DB: db.SQL(t), Level: sql.LevelReadCommitted}
	if pgx {
		w.pool = db.Pool(t)
	}
	return w
}

// SQLite has one level, and its driver refuses the names of others.
var levels = map[migrate.Engine][]sql.IsolationLevel{
	migrate.Postgres: {sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
	migrate.MySQL: {sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable},
	migrate.SQLite: {sql.LevelDefault},
}

// Snapshots tells whether the level may answer an old snapshot with a serialisation error.
func (w World) Snapshots() bool {
	return w.Engine == migrate.SQLite || w.Level == sql.LevelRepeatableRead || w.Level == sql.LevelSerializable
}

// Default tells whether this is the one level of a library that a test takes which is not about
// levels.
func (w World) Default() bool { return w.Level == levels[w.Engine][len(levels[w.Engine])/2] }

// Name is one that no other world has, told apart by what.
func (w World) Name(what string) string {
	return fmt.Sprintf("%s/%v/%t", what, w.Level, w.pool != nil)
}

// Tx is a transaction of the application's.
type Tx struct {
	TX   any // the pgx.Tx or the *sql.Tx
	t    *testing.T
	exec func(ctx context.Context, text string) error
	scan func(ctx context.Context, text string, into any) error
	end  func(ctx context.Context, commit bool) error
}

// Begin begins a transaction, which is rolled back when the test has ended.
func (w World) Begin(t *testing.T) *Tx {
	t.Helper()
	x, err := w.begin(context.WithoutCancel(t.Context())) // or the test's end would be a broken connection
	ok(t, err)
	x.t = t
	t.Cleanup(func() { _ = x.end(context.Background(), false) })
	return x
}

// InTx runs do in a transaction, which it commits.
func (w World) InTx(ctx context.Context, do func(tx *Tx) error) error {
	x, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if err := do(x); err != nil {
		_ = x.end(context.WithoutCancel(ctx), false)
		return err
	}
	return x.end(ctx, true)
}

func (w World) begin(ctx context.Context) (*Tx, error) {
	if w.pool != nil {
		tx, err := w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(strings.ToLower(w.Level.String()))})
		return &Tx{
			TX:   tx,
			exec: func(ctx context.Context, text string) error { _, err := tx.Exec(ctx, text); return err },
			scan: func(ctx context.Context, text string, into any) error { return tx.QueryRow(ctx, text).Scan(into) },
			end: func(ctx context.Context, commit bool) error {
				if commit {
					return tx.Commit(ctx)
				}
				return tx.Rollback(ctx)
			},
		}, err
	}
	tx, err := w.DB.BeginTx(ctx, &sql.TxOptions{Isolation: w.Level})
	x := &Tx{
		TX:   tx,
		exec: func(ctx context.Context, text string) error { _, err := tx.ExecContext(ctx, text); return err },
		scan: func(ctx context.Context, text string, into any) error {
			return tx.QueryRowContext(ctx, text).Scan(into)
		},
		end: func(_ context.Context, commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		},
	}
	if w.Engine == migrate.SQLite {
		x.TX = &Counted{Tx: tx}
	}
	return x, err
}

// Counted is a *sql.Tx that counts the rows that it was asked for.
type Counted struct {
	*sql.Tx
	rows chan struct{}
}

// QueryRowContext counts.
func (c *Counted) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if c.rows != nil && strings.Contains(query, "dblock_") {
		select {
		case c.rows <- struct{}{}:
		default:
		}
	}
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// GoesOn fails unless the transaction can still read and write.
func (x *Tx) GoesOn() {
	x.t.Helper()
	x.Exec("INSERT INTO app_rows (n) VALUES (1)")
	x.Number("SELECT count(*) FROM app_rows")
}

// Run runs a statement, which may fail.
func (x *Tx) Run(ctx context.Context, text string) error { return x.exec(ctx, text) }

// Query scans one row, and may fail.
func (x *Tx) Query(ctx context.Context, text string, into any) error { return x.scan(ctx, text, into) }

// Exec runs a statement.
func (x *Tx) Exec(text string) {
	x.t.Helper()
	require.NoError(x.t, x.exec(x.t.Context(), text), text)
}

// Number is what a query selects.
func (x *Tx) Number(text string) (n int64) {
	x.t.Helper()
	require.NoError(x.t, x.scan(x.t.Context(), text, &n), text)
	return n
}

// Text is what a query selects.
func (x *Tx) Text(text string) (s string) {
	x.t.Helper()
	require.NoError(x.t, x.scan(x.t.Context(), text, &s), text)
	return s
}

// Snapshot takes the transaction's snapshot, where its level has one for all of its statements.
func (x *Tx) Snapshot() { x.t.Helper(); x.Number("SELECT count(*) FROM app_rows") }

// Commit must work.
func (x *Tx) Commit() { x.t.Helper(); ok(x.t, x.end(x.t.Context(), true)) }

// TryCommit may fail.
func (x *Tx) TryCommit() error { return x.end(x.t.Context(), true) }

// TryRollback may fail.
func (x *Tx) TryRollback() error { return x.end(x.t.Context(), false) }

// Set changes a setting; on SQLite that is a query.
func (x *Tx) Set(text string) {
	x.t.Helper()
	if strings.HasPrefix(text, "PRAGMA") {
		x.Text(text)
		return
	}
	x.Exec(text)
}

// Rollback must work.
func (x *Tx) Rollback() { x.t.Helper(); ok(x.t, x.end(x.t.Context(), false)) }

// Waiting starts do, which uses x, and returns when it waits for another transaction. It fails
// where do ends instead.
func (w World) Waiting(t *testing.T, x *Tx, do func() error) (result func() error) {
	t.Helper()
	var rows chan struct{}
	if c, counted := x.TX.(*Counted); counted {
		rows = make(chan struct{}, 1)
		c.rows = rows
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	result = func() error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(limit):
			t.Fatal("it waits for ever")
		}
		return nil
	}
	for start := time.Now(); ; {
		if w.waits(t, rows) {
			return result
		}
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
		if time.Since(start) > limit {
			t.Fatal("it does not wait for a row")
		}
	}
}

// waits tells whether somebody in the database waits for a row; on SQLite, which waits inside the
// statement, whether the row was asked for.
func (w World) waits(t *testing.T, rows chan struct{}) bool {
	t.Helper()
	if w.Engine == migrate.SQLite {
		return len(rows) == cap(rows)
	}
	query := ""
	switch w.Kind {
	case dbtest.KindPostgres:
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	case dbtest.KindMySQL:
		query = "SELECT count(*) FROM performance_schema.data_locks WHERE object_schema = DATABASE() AND " +
			"lock_status = 'WAITING'"
	case dbtest.KindMariaDB: // innodb_trx is a copy that is made anew only when nobody has looked for 100 ms
		query = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()" +
			" AND command IN ('Query', 'Execute') AND time_ms > 25 AND info LIKE '%dblock%'"
	}
	var n int
	ok(t, w.DB.QueryRowContext(t.Context(), query).Scan(&n))
	return n > 0
}

func ok(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
