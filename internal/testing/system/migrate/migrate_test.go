package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrations"
)

func TestTenProcessesMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite { // the hardest settings: no waiting, and readers in the way
			dsn, _, _ = strings.Cut(dsn, "?")
			dsn += "?_pragma=busy_timeout(0)&_pragma=journal_mode(DELETE)"
		}
		processes(t, 10, db, dsn)
		pool := db.SQL(t)
		complete(t, db, pool, migrations.Sets...)
		var rows int
		scan(t, pool, &rows, "SELECT count(*) FROM dblock_schema")
		if rows != 1 {
			t.Errorf("the migration ran %d times", rows)
		}
		for _, set := range migrations.Sets {
			scan(t, pool, &rows, "SELECT count(*) FROM "+set.Table())
			assert.Equal(t, rows, 1+versions(set), "rows in the history of the", set)
		}
	})
}

func TestUpTwiceDownTwiceAndUpAgain(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		pool.SetMaxOpenConns(1)
		states(t, db, pool, false)
		for range 2 {
			ok(t, migrate.Up(t.Context(), pool, db.Engine))
			complete(t, db, pool)
		}
		for range 2 {
			ok(t, migrate.Down(t.Context(), pool, db.Engine))
			states(t, db, pool, false)
			if tables := left(t, db, pool); len(tables) > 0 {
				t.Errorf("Down left %v", tables)
			}
		}
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		complete(t, db, pool)
		assert.Equal(t, pool.Stats().InUse, 0, "connections of the caller's pool were kept")
	})
}

func TestStatusWritesNothing(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		states(t, db, pool, false)
		if err := pool.QueryRowContext(t.Context(), "SELECT 1 FROM dblock_migrations").Scan(new(int)); err == nil ||
			errors.Is(err, sql.ErrNoRows) {
			t.Error("Status made the version table")
		}
	})
}

// An application has a history of its own, with its own version 1, in the same database.
func TestTwoHistoriesSideBySide(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		dir := t.TempDir()
		file := "-- +goose Up\nCREATE TABLE theirs (n int);\n-- +goose Down\nDROP TABLE theirs;\n"
		ok(t, os.WriteFile(filepath.Join(dir, "00001_theirs.sql"), []byte(file), 0o600))
		theirs, err := goose.NewProvider(gooseDialect(db), pool, os.DirFS(dir))
		ok(t, err)
		_, err = theirs.Up(t.Context())
		ok(t, err)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		complete(t, db, pool)
		version, err := theirs.GetDBVersion(t.Context())
		if err != nil || version != 1 {
			t.Errorf("their history is at %d: %v", version, err)
		}
		ok(t, migrate.Down(t.Context(), pool, db.Engine))
		var n int
		scan(t, pool, &n, "SELECT count(*) FROM theirs")
	})
}

// A newer build adds a column, and then makes the tables such that this build cannot use them.
func TestADatabaseThatANewerBuildMigrated(t *testing.T) {
	const own = int64(driver.SchemaVersion)
	const adds, refuses = own + 1, own + 2
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		newer := newerBuild(t, db, pool)
		_, err := newer.UpTo(t.Context(), adds)
		ok(t, err)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		list, err := migrate.Status(t.Context(), pool, db.Engine)
		ok(t, err)
		assert.Equal(t, list[len(list)-1], (migrate.Migration{Set: migrate.Locks, Version: adds, Applied: true}))
		for what, err := range map[string]error{
			"Down":   migrate.Down(t.Context(), pool, db.Engine),
			"DownTo": migrate.DownTo(t.Context(), pool, db.Engine, own),
		} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at version %d, which this build does not know",
				adds)) {
				t.Errorf("%s below an unknown version: %v", what, err)
			}
		}
		states(t, db, pool, true)

		_, err = newer.UpTo(t.Context(), refuses)
		ok(t, err)
		err = migrate.Up(t.Context(), pool, db.Engine)
		if says := fmt.Sprintf("at version %d, which serves builds for version %[1]d and later",
			refuses); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), says) {
			t.Errorf("Up in tables that this build cannot use: %v", err)
		}

		_, err = newer.DownTo(t.Context(), own)
		ok(t, err)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		complete(t, db, pool)
		ok(t, migrate.DownTo(t.Context(), pool, db.Engine, own))
		complete(t, db, pool)
		for _, version := range []int64{0, adds} {
			assert.Error(t, migrate.DownTo(t.Context(), pool, db.Engine, version), "DownTo(", version, ") is taken")
		}
	})
}

// newerBuild migrates as a build does that has two made-up versions more.
func newerBuild(t *testing.T, db dbtest.Database, pool *sql.DB) *goose.Provider {
	t.Helper()
	own, err := migrations.FS(db.Engine)
	ok(t, err)
	names, err := fs.Glob(own, "*.sql")
	ok(t, err)
	files := fstest.MapFS{}
	add := func(name, format string, args ...any) {
		files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, format, args...)}
	}
	for _, name := range names {
		text, err := fs.ReadFile(own, name)
		ok(t, err)
		add(name, "%s", text)
	}
	const last = driver.SchemaVersion
	add(fmt.Sprintf("%05d_adds.sql", last+1), `-- +goose Up
ALTER TABLE dblock_locks ADD COLUMN made_up bigint NOT NULL DEFAULT 0;
UPDATE dblock_schema SET version = %d;
-- +goose Down
ALTER TABLE dblock_locks DROP COLUMN made_up;
UPDATE dblock_schema SET version = %d;
`, last+1, last)
	add(fmt.Sprintf("%05d_refuses.sql", last+2), `-- +goose Up
UPDATE dblock_schema SET version = %d, usable_from = %[1]d;
-- +goose Down
UPDATE dblock_schema SET version = %d, usable_from = 1;
`, last+2, last+1)
	provider, err := goose.NewProvider(gooseDialect(db), pool, files, goose.WithTableName(migrate.Locks.Table()),
		goose.WithDisableGlobalRegistry(true))
	ok(t, err)
	return provider
}

// A context ends while another process holds the lock: the error says so, and nothing was done.
func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		waits(t, db, func(pool *sql.DB) { states(t, db, pool, false) })
		pool := db.SQL(t)
		change(t, pool, "DELETE FROM dblock_schema") // what Up writes then, it writes under the lock, too
		waits(t, db, func(pool *sql.DB) { rows(t, pool, 0) })
		rows(t, pool, 1)
	})
}

// waits holds the lock while Up waits for it, and calls undone. Then it lets Up have the lock.
func waits(t *testing.T, db dbtest.Database, undone func(pool *sql.DB)) {
	t.Helper()
	release := hold(t, db)
	pool := db.SQL(t)
	// Where connecting takes long, the time is over before the lock is looked at.
	for wait := 300 * time.Millisecond; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		err := migrate.Up(ctx, pool, db.Engine)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "another process") {
			break
		}
		if err == nil || wait > 10*time.Second {
			t.Fatal(err)
		}
	}
	undone(pool)
	done := make(chan error)
	go func() { done <- migrate.Up(t.Context(), pool, db.Engine) }()
	release()
	ok(t, <-done)
	complete(t, db, pool)
}

func change(t *testing.T, pool *sql.DB, text string) {
	t.Helper()
	_, err := pool.ExecContext(t.Context(), text)
	ok(t, err)
}

func rows(t *testing.T, pool *sql.DB, want int) {
	t.Helper()
	var n int
	scan(t, pool, &n, "SELECT count(*) FROM dblock_schema")
	assert.Equal(t, n, want, "rows of dblock_schema")
}

// Broken by an Up that did not look whether its statement had written the row.
func TestUpDoesNotClaimAVersionThatItCouldNotWrite(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		change(t, pool, "DELETE FROM dblock_schema")
		way := map[migrate.Engine]struct{ in, out, says string }{
			migrate.Postgres: {"CREATE RULE lost AS ON INSERT TO dblock_schema DO INSTEAD NOTHING",
				"DROP RULE lost ON dblock_schema", "did not keep"},
			migrate.SQLite: {"CREATE TRIGGER lost BEFORE INSERT ON dblock_schema BEGIN SELECT RAISE(IGNORE); END",
				"DROP TRIGGER lost", "did not keep"},
			migrate.MySQL: {"ALTER TABLE dblock_locks ALTER COLUMN database_id DROP DEFAULT",
				"ALTER TABLE dblock_locks ALTER COLUMN database_id SET DEFAULT 'x'", "shows no default"},
		}[db.Engine]
		change(t, pool, way.in)
		if err := migrate.Up(t.Context(), pool, db.Engine); err == nil || !strings.Contains(err.Error(), way.says) {
			t.Error(err)
		}
		rows(t, pool, 0)
		change(t, pool, way.out)
		ok(t, migrate.Up(t.Context(), pool, db.Engine))
		rows(t, pool, 1)
	})
}

// Down takes the tables in another order than some statements of a client. The transaction of a
// client has dblock_waiters and wants dblock_locks; Down has the latter and wants the former.
func TestADeadlockWithAClientOnlyDelaysDown(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		if db.Engine == migrate.Postgres {
			deadlocked(t, db.SQL(t))
		}
	})
}

func deadlocked(t *testing.T, pool *sql.DB) {
	tx, err := pool.BeginTx(t.Context(), nil)
	ok(t, err)
	defer tx.Rollback()
	read := func(table string) {
		_, err := tx.ExecContext(t.Context(), "SELECT FROM "+table)
		ok(t, err)
	}
	// The transaction looks for a deadlock so late that Down is the one that finds it.
	_, err = tx.ExecContext(t.Context(),
		"SELECT set_config('deadlock_timeout', '20s', true) FROM pg_roles WHERE rolname = current_user AND rolsuper")
	ok(t, err)
	read("dblock_waiters")
	down := make(chan error, 1)
	go func() { down <- migrate.Down(t.Context(), pool, migrate.Postgres) }()
	for waiting := false; !waiting; {
		select {
		case err := <-down:
			t.Fatalf("Down did not wait: %v", err)
		default:
		}
		ok(t, pool.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
			WHERE relation = 'dblock_waiters'::regclass AND NOT granted)`).Scan(&waiting))
	}
	read("dblock_locks") // ends when the server has found the deadlock, at Down's cost
	ok(t, tx.Commit())
	ok(t, <-down)
}

func TestAContextThatHasEndedDoesNothing(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, migrate.Up(ctx, pool, db.Engine), context.Canceled)
		states(t, db, pool, false)
	})
}

func TestMySQLWithoutParseTimeAndWithoutAutocommit(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			plain, odd := db, db
			dsn, _, _ := strings.Cut(db.DSN, "?")
			odd.DSN = dsn + "?parseTime=false&autocommit=0&clientFoundRows=true&time_zone=%27%2B05:30%27"
			pool := odd.SQL(t)
			for range 2 {
				ok(t, migrate.Up(t.Context(), pool, odd.Engine))
				complete(t, plain, plain.SQL(t))
			}
			ok(t, migrate.Down(t.Context(), pool, odd.Engine))
			states(t, plain, plain.SQL(t), false)
		})
	}
}

func TestAnSQLiteDatabaseInMemorySurvives(t *testing.T) {
	pool, err := sql.Open("sqlite", ":memory:")
	ok(t, err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	ok(t, migrate.Up(t.Context(), pool, migrate.SQLite))
	var version int
	scan(t, pool, &version, "SELECT version FROM dblock_schema")
}

func TestBadInput(t *testing.T) {
	pool, err := sql.Open("sqlite", ":memory:")
	ok(t, err)
	defer pool.Close()
	for _, f := range []func(*sql.DB, migrate.Engine) error{
		func(db *sql.DB, engine migrate.Engine) error { return migrate.Up(t.Context(), db, engine) },
		func(db *sql.DB, engine migrate.Engine) error { return migrate.Down(t.Context(), db, engine) },
		func(db *sql.DB, engine migrate.Engine) error {
			_, err := migrate.Status(t.Context(), db, engine)
			return err
		},
	} {
		if err := f(pool, "oracle"); err == nil || !strings.Contains(err.Error(), "oracle") {
			t.Error(err)
		}
		assert.Error(t, f(nil, migrate.SQLite), "a nil pool is taken")
	}
}

// hold takes the lock until release. For the database the holder is another process.
func hold(t *testing.T, db dbtest.Database) (release func()) {
	t.Helper()
	conn, err := db.SQL(t).Conn(t.Context())
	ok(t, err)
	take, give := map[migrate.Engine]string{
		migrate.Postgres: "SELECT pg_advisory_lock(x'64626c6f636b5f6d'::bigint)",
		migrate.MySQL:    "SELECT GET_LOCK(LEFT(CONCAT('dblock:migrate:', DATABASE()), 64), 5)",
		migrate.SQLite:   "BEGIN IMMEDIATE",
	}[db.Engine], map[migrate.Engine]string{
		migrate.Postgres: "SELECT pg_advisory_unlock(x'64626c6f636b5f6d'::bigint)",
		migrate.MySQL:    "SELECT RELEASE_LOCK(LEFT(CONCAT('dblock:migrate:', DATABASE()), 64))",
		migrate.SQLite:   "ROLLBACK",
	}[db.Engine]
	_, err = conn.ExecContext(t.Context(), take)
	ok(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), give)
		ok(t, errors.Join(err, conn.Close()))
	}
}

// complete fails unless the tables and the histories of some sets, of the locks where none is
// named, are at this build's version.
func complete(t *testing.T, db dbtest.Database, pool *sql.DB, sets ...migrate.Set) {
	t.Helper()
	if len(sets) == 0 {
		sets = []migrate.Set{migrate.Locks}
	}
	states(t, db, pool, true, sets...)
	for _, set := range sets {
		var n int
		for _, table := range tables[set] {
			scan(t, pool, &n, "SELECT count(*) FROM "+table)
		}
		if set != migrate.Locks {
			continue
		}
		scan(t, pool, &n, "SELECT max(version) FROM dblock_schema")
		assert.Equal(t, n, driver.SchemaVersion, "the tables are at version")
	}
}

// tables are some tables of each set.
var tables = map[migrate.Set][]string{
	migrate.Locks:    {"dblock_sessions", "dblock_heartbeats", "dblock_locks", "dblock_waiters"},
	migrate.Fences:   {"dblock_fences"},
	migrate.Versions: {"dblock_versions"},
}

// versions returns how many versions a set has.
func versions(set migrate.Set) int {
	if set == migrate.Locks {
		return driver.SchemaVersion
	}
	return 1
}

func states(t *testing.T, db dbtest.Database, pool *sql.DB, applied bool, sets ...migrate.Set) {
	t.Helper()
	if len(sets) == 0 {
		sets = []migrate.Set{migrate.Locks}
	}
	for _, set := range sets {
		list, err := migrate.Status(t.Context(), pool, db.Engine, set)
		ok(t, err)
		if len(list) < versions(set) {
			t.Fatalf("%d migrations of the %s", len(list), set)
		}
		for i, m := range list[:versions(set)] {
			if m.Applied != applied || m.Version != int64(i+1) || m.File == "" || m.Set != set {
				t.Errorf("%+v", m)
			}
		}
	}
}

// left lists the tables with dblock's prefix, other than the version table.
func left(t *testing.T, db dbtest.Database, pool *sql.DB) (names []string) {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), map[migrate.Engine]string{
		migrate.Postgres: "SELECT relname FROM pg_class WHERE relname LIKE 'dblock%' UNION SELECT proname FROM " +
			"pg_proc WHERE proname LIKE 'dblock%'",
		migrate.MySQL: "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND " +
			"table_name LIKE 'dblock%'",
		migrate.SQLite: "SELECT name FROM sqlite_master WHERE name LIKE 'dblock%'",
	}[db.Engine])
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		ok(t, rows.Scan(&name))
		if !strings.HasPrefix(name, "dblock_migrations") {
			names = append(names, name)
		}
	}
	ok(t, rows.Err())
	slices.Sort(names)
	return names
}

func gooseDialect(db dbtest.Database) goose.Dialect {
	if db.Engine == migrate.SQLite {
		return goose.DialectSQLite3
	}
	return goose.Dialect(db.Engine)
}

func scan(t *testing.T, pool *sql.DB, into any, query string) {
	t.Helper()
	require.NoError(t, pool.QueryRowContext(t.Context(), query).Scan(into), query)
}

func ok(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
