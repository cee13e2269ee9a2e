package dbtest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// onServers runs f on each kind of server that uses databases again.
func onServers(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range []string{dbtest.KindPostgres, dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			dbtest.Need(t, kind)
			f(t, kind)
		})
	}
}

// left has a test of its own, with a preparation that no other test has, do something to its
// database, and returns the database.
func left(t *testing.T, kind string, do func(t *testing.T, db dbtest.Database)) (db dbtest.Database) {
	t.Helper()
	preparation := t.Name()
	t.Run("a test", func(t *testing.T) {
		db = dbtest.Prepared(t, kind, preparation, func(dbtest.Database) {})
		do(t, db)
	})
	return db
}

// next returns what the next test with the same preparation gets.
func next(t *testing.T, kind string) dbtest.Database {
	t.Helper()
	return dbtest.Prepared(t, kind, t.Name(), func(dbtest.Database) {})
}

func TestADatabaseIsUsedAgainWithoutWhatATestHasLeft(t *testing.T) {
	onServers(t, func(t *testing.T, kind string) {
		db := left(t, kind, func(t *testing.T, db dbtest.Database) {
			db.Exec(t, "CREATE TABLE app (n integer)",
				"INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES ('s', 'h', 1, 'a', 1)")
		})
		again := next(t, kind)
		require.Equal(t, again.DSN, db.DSN, "the database")
		pool := again.SQL(t)
		var n int
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_sessions").Scan(&n))
		assert.Equal(t, n, 0, "sessions")
		assert.Error(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM app").Scan(&n), "table app is there")
	})
}

// A database in which anything but rows has changed is dropped. Broken by leaving one of the
// catalogs out.
func TestADatabaseThatIsNotAsItWasIsDropped(t *testing.T) {
	both := map[string]string{
		"a column":  "ALTER TABLE dblock_locks ADD COLUMN further integer",
		"a default": "ALTER TABLE dblock_locks ALTER COLUMN next_ticket SET DEFAULT 7",
		"an index":  "CREATE INDEX further ON dblock_locks (token)",
		"a view":    "CREATE VIEW further AS SELECT token FROM dblock_locks",
		"a row":     "UPDATE dblock_schema SET usable_from = usable_from + 1",
		"no table":  "DROP TABLE dblock_events",
	}
	of := map[string]map[string]string{
		dbtest.KindPostgres: {
			"a function": "CREATE OR REPLACE FUNCTION dblock_now() RETURNS bigint LANGUAGE sql VOLATILE AS " +
				"'SELECT 1::bigint'",
			"a schema": "CREATE SCHEMA further",
			"a trigger": "CREATE TRIGGER further BEFORE UPDATE ON dblock_locks FOR EACH ROW EXECUTE FUNCTION " +
				"suppress_redundant_updates_trigger()",
			"a right":      "GRANT SELECT ON dblock_locks TO PUBLIC",
			"a constraint": "ALTER TABLE dblock_locks ADD CONSTRAINT further CHECK (token >= 0)",
			"a policy":     "ALTER TABLE dblock_locks ENABLE ROW LEVEL SECURITY",
			"a setting": "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = ''8MB''', " +
				"current_database()); END $$",
			"statistics": "ANALYZE dblock_schema",
		},
		dbtest.KindMySQL: {
			"a trigger": "CREATE TRIGGER further BEFORE UPDATE ON dblock_locks FOR EACH ROW SET NEW.host = NEW.host",
			"an engine": "ALTER TABLE dblock_locks ENGINE = MyISAM",
			"a charset": "ALTER DATABASE CHARACTER SET ascii",
			"a routine": "CREATE PROCEDURE further() SELECT 1",
		},
	}
	of[dbtest.KindMariaDB] = of[dbtest.KindMySQL]
	onServers(t, func(t *testing.T, kind string) {
		for _, changes := range []map[string]string{both, of[kind]} {
			for what, statement := range changes {
				t.Run(what, func(t *testing.T) {
					db := left(t, kind, func(t *testing.T, db dbtest.Database) { db.Exec(t, statement) })
					if next(t, kind).DSN == db.DSN {
						t.Error("it is used again after", statement)
					}
				})
			}
		}
		t.Run("a connection", func(t *testing.T) {
			var pool *sql.DB
			db := left(t, kind, func(t *testing.T, db dbtest.Database) {
				pool = sqlOutside(t, db)
				require.NoError(t, pool.PingContext(t.Context()))
			})
			if next(t, kind).DSN == db.DSN {
				t.Error("it is used again beside a connection of the test before")
			}
			_ = pool.Close()
		})
	})
}

// sqlOutside opens a pool that the test's end does not close.
func sqlOutside(t *testing.T, db dbtest.Database) *sql.DB {
	t.Helper()
	name, dsn := "pgx", db.DSN
	if db.Kind != dbtest.KindPostgres {
		name = "mysql"
	}
	pool, err := sql.Open(name, dsn)
	require.NoError(t, err)
	return pool
}

func TestABackendThatIsKeptIsAsNew(t *testing.T) {
	db := dbtest.Warm(t, dbtest.KindPostgres)
	read := func(query string) (text string) {
		t.Helper()
		pool := db.SQL(t)
		pool.SetMaxOpenConns(1)
		defer pool.Close()
		require.NoError(t, pool.QueryRowContext(t.Context(), query).Scan(&text))
		return text
	}
	pid := read("SELECT pg_backend_pid() || set_config('work_mem', '9MB', false) || pg_advisory_lock(7)")
	require.Equal(t, read("SELECT pg_backend_pid() || '9MB'"), pid, "the backend")
	assert.Equal(t, read("SELECT current_setting('work_mem') || count(*) || current_setting('application_name') FROM "+
		"pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"), "4MB0", "its setting, lock and name")

	killer, name := dbtest.Postgres(t).SQL(t), read("SELECT current_database()")
	_, err := killer.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE "+
		"application_name = 'kept by dbtest' AND datname = $1", name)
	require.NoError(t, err)
	read("SELECT 'one that was killed is not used'")
}

// pgx waits for the server to end a connection after a cancelled statement. Broken by keeping the
// message Terminate from the server then.
func TestABackendWhoseStatementWasCancelledIsNotKept(t *testing.T) {
	db := dbtest.Warm(t, dbtest.KindPostgres)
	pool := db.SQL(t)
	var before, after int
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&before))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, require.ErrOf(pool.ExecContext(ctx, "SELECT pg_sleep(60)")), "it was not cancelled")
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&after))
	if before == after {
		t.Error("the backend is used again")
	}
}
