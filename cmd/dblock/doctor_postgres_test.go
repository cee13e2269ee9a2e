package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// onPostgres runs a test on a database of PostgreSQL.
func onPostgres(t *testing.T, test func(w *world)) {
	t.Helper()
	eachKind(t, test, "postgres")
}

// set makes a setting that of the test's own database, which new connections have.
func (w *world) set(name, value string) {
	w.Helper()
	w.exec(fmt.Sprintf("ALTER DATABASE %s SET %s = %s", w.name(), name, value))
}

// as is a data source of the command for another user, which is made.
func (w *world) as(options string) (user string, dsn string) {
	w.Helper()
	u, err := url.Parse(w.dsn)
	require.NoError(w, err)
	user = w.name()
	if w.engine == migrate.Postgres {
		w.exec("CREATE ROLE " + user + " LOGIN PASSWORD 'x' " + options)
		w.Cleanup(func() { w.later("DROP OWNED BY "+user, "DROP ROLE "+user) })
	} else {
		w.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'x' " + options)
		w.Cleanup(func() { w.later("DROP USER " + user + "@'%'") })
	}
	u.User = url.UserPassword(user, "x")
	return user, u.String()
}

// later runs statements when the test is over.
func (w *world) later(statements ...string) {
	for _, s := range statements {
		assert.NoError(w, assert.ErrOf(w.db.Exec(s)), s)
	}
}

// grant gives a user what a document of privileges has.
func (w *world) grant(user, file string) {
	w.Helper()
	for _, g := range grants(w.T, file) {
		w.exec(strings.NewReplacer("orders_app", user, "orders.", w.name()+".", ";", "").Replace(g.text))
	}
}

func TestDoctorSeesThatPostgresIsReadOnly(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.set("default_transaction_read_only", "on")
		d := w.doctor()
		d.hasOnly(isProblem, "primary", "default_transaction_read_only, database")
		d.hasOnly(isOK, "schema")
	})
}

func TestDoctorSeesTimeoutsOfPostgres(t *testing.T) {
	onPostgres(t, func(w *world) {
		for _, c := range []struct {
			name, value string
			want        level
			says        string
		}{
			{"statement_timeout", "'999ms'", isProblem, "statement_timeout is 999ms (database)"},
			{"statement_timeout", "'15s'", isNote, "LockTx"},
			{"statement_timeout", "'16s'", isOK, ""},
			{"lock_timeout", "'50ms'", isNote, "LockTx"},
			{"idle_in_transaction_session_timeout", "'500ms'", isProblem, "cut off"},
			{"idle_in_transaction_session_timeout", "'1s'", isOK, ""},
			{"idle_session_timeout", "'2s'", isProblem, "cut off"},
			{"idle_session_timeout", "'20s'", isNote, "listen"},
			{"transaction_timeout", "'500ms'", isProblem, "cut off"},
			{"transaction_timeout", "'5s'", isNote, "LockTx"},
		} {
			var there bool
			require.NoError(w, w.db.QueryRow("SELECT EXISTS (SELECT FROM pg_settings WHERE name = $1)",
				c.name).Scan(&there))
			if !there { // an older PostgreSQL
				continue
			}
			w.set(c.name, c.value)
			d := w.doctor()
			d.hasOnly(c.want, "time-outs", c.says)
			w.exec(fmt.Sprintf("ALTER DATABASE %s RESET %s", w.name(), c.name))
		}
	})
}

func TestDoctorSeesThatPostgresDoesNotWaitForTheDisk(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.set("synchronous_commit", "off")
		d := w.doctor()
		d.has(isNote, "durability", "grants wait for the disk all the same")
		w.set("synchronous_commit", "on")
		if d := w.doctor(); strings.Contains(d.text("durability"), "synchronous_commit is off") {
			w.Error(d.text("durability"))
		}
	})
}

func TestDoctorTellsWhyATransactionFailed(t *testing.T) {
	over, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("no answer"))
	defer cancel()
	of := func(code, message string) error { return &pgconn.PgError{Code: code, Message: message} }
	for _, c := range []struct {
		ctx     context.Context
		err     error
		refused bool
	}{
		{t.Context(), of("08P01", "transaction blocks not allowed in statement pooling mode"), true},
		{t.Context(), of("0A000", "transactions are not supported"), true},
		{t.Context(), of("08P01", "query_wait_timeout"), false},
		{t.Context(), of("57P01", "terminating connection due to administrator command"), false},
		{t.Context(), of("53300", "too many connections"), false},
		{t.Context(), io.ErrUnexpectedEOF, false},
		{over, of("08P01", "transaction blocks not allowed in statement pooling mode"), false},
		{over, context.DeadlineExceeded, false},
	} {
		if err := refusal(c.ctx, c.err); errors.Is(err, errRefused) != c.refused {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

// occupy has a pool keep connections until the test ends, or fewer where it gets no more.
func occupy(t *testing.T, pool *sql.DB, n int) (held int) {
	t.Helper()
	for ; held < n; held++ {
		c, err := pool.Conn(t.Context())
		if err != nil {
			return held
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	return held
}

// counts waits until doctor says so of connections: a session goes a moment after its client.
func (w *world) counts(dsn, want string) {
	w.Helper()
	var said string
	defer func() {
		if w.Failed() {
			w.Log(said)
		}
	}()
	w.until(func() bool {
		said = w.at(dsn).doctor().text("connections")
		return strings.Contains(said, want)
	})
}

func TestDoctorSeesTheConnectionsOfAUserAndADatabase(t *testing.T) {
	onPostgres(t, func(w *world) {
		user, dsn := w.as("CONNECTION LIMIT 4")
		w.grant(user, "postgres-app.sql")
		w.counts(dsn, "ok: 0 of the 4 connections of user "+user)
		pool, err := sql.Open("pgx", dsn)
		require.NoError(w, err)
		defer pool.Close()
		require.Equal(w, occupy(w.T, pool, 1), 1, "connections")
		w.counts(dsn, "problem: 1 of the 4 connections of user "+user+" are in use: a client needs up to 4")
		w.exec("ALTER ROLE "+user+" CONNECTION LIMIT -1", fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT 50",
			w.name()))
		d := w.at(dsn).doctor()
		d.has(isOK, "connections", "of the 50 connections of database "+w.name()) // the server's may be in use
		d.has(isOK, "connections", "connections of user "+user+" are in use, and there is no limit")
		occupy(w.T, w.db, 40)
		d = w.at(dsn).doctor()
		d.has(isNote, "connections", "of the 50 connections of database "+w.name())
	})
}

func TestDoctorSeesLongTransactionsOfPostgres(t *testing.T) {
	onPostgres(t, func(w *world) {
		tx, err := w.db.Begin()
		require.NoError(w, err)
		defer tx.Rollback()
		var pid int
		require.NoError(w, tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
		d := w.doctor("--older", "1ms")
		d.hasOnly(isNote, "transactions", fmt.Sprintf("pid %d", pid), "idle in transaction", "its waiters wait")
		d = w.doctor()
		d.hasOnly(isOK, "transactions", "5m0s")

		user, dsn := w.as("")
		w.grant(user, "postgres-app.sql")
		d = w.at(dsn).doctor("--older", "1ms")
		d.has(isUnknown, "transactions", "hidden", "pg_read_all_stats")
		w.exec("GRANT pg_read_all_stats TO " + user)
		d = w.at(dsn).doctor("--older", "1ms")
		d.hasOnly(isNote, "transactions", fmt.Sprintf("pid %d", pid))
	})
}

func TestDoctorSeesWhichRightsAreMissingOnPostgres(t *testing.T) {
	onPostgres(t, func(w *world) {
		user, dsn := w.as("")
		w.grant(user, "postgres-app.sql")
		doctor := func() diagnosis { return w.at(dsn).doctor() }
		doctor().hasOnly(isOK, "privileges", user)
		w.exec("REVOKE DELETE ON dblock_waiters FROM " + user)
		doctor().hasOnly(isProblem, "privileges", user+" lacks DELETE on dblock_waiters;", "postgres-app.sql")
		w.exec("REVOKE ALL ON dblock_incarnation FROM "+user, "REVOKE EXECUTE ON FUNCTION dblock_durable() FROM PUBLIC")
		d := doctor()
		d.has(isProblem, "privileges", user+" lacks DELETE on dblock_waiters, EXECUTE on dblock_durable();")
		d.has(isNote, "privileges", "SELECT on dblock_incarnation", "package quorum")
		d.hasOnly(isUnknown, "sessions", "permission denied", "dblock_migrations")
		w.exec("REVOKE ALL ON dblock_schema FROM " + user)
		d = doctor()
		d.hasOnly(isProblem, "schema", "permission denied")
		d.has(isProblem, "privileges", "SELECT on dblock_schema")
	})
}

func TestDoctorSeesThatRowLevelSecurityHidesTheTables(t *testing.T) {
	onPostgres(t, func(w *world) {
		user, dsn := w.as("")
		w.grant(user, "postgres-app.sql")
		w.exec("ALTER TABLE dblock_schema ENABLE ROW LEVEL SECURITY",
			"ALTER TABLE dblock_locks ENABLE ROW LEVEL SECURITY")
		d := w.at(dsn).doctor()
		d.hasOnly(isProblem, "schema", "row level security hides the rows of table dblock_schema from role", user)
		d.has(isProblem, "privileges", "hides all rows from "+user+" of dblock_schema, dblock_locks", "switch it off")
		w.exec("CREATE POLICY app ON dblock_schema USING (true)", "ALTER TABLE dblock_locks DISABLE ROW LEVEL SECURITY")
		d = w.at(dsn).doctor()
		d.hasOnly(isOK, "schema")
		d.has(isNote, "privileges", "row level security applies to "+user+" on dblock_schema")
	})
}

func TestDoctorSeesATableThatWasCopied(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.exec("CREATE SCHEMA origin", "CREATE TABLE origin.dblock_locks (LIKE dblock_locks)",
			"CREATE OR REPLACE FUNCTION dblock_make(lock_name text) RETURNS boolean LANGUAGE sql VOLATILE "+
				"BEGIN ATOMIC DELETE FROM origin.dblock_locks WHERE name = lock_name; SELECT false; END")
		w.doctor().hasOnly(isProblem, "schema", "use the tables of schema \"origin\"", "migrate.Up")
	})
}

// The functions of pg_catalog come first unless the search_path has it: so this server has another
// clock.
func TestDoctorSeesThatClocksOfPostgresDiffer(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.exec("CREATE SCHEMA skew", "CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql "+
			"VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() - interval '1 hour' $$")
		w.set("search_path", "skew, pg_catalog, public")
		d := w.doctor()
		d.hasOnly(isProblem, "clock", "ahead of the server's", "OnceAt", "NTP")
		w.exec("CREATE OR REPLACE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ " +
			"SELECT pg_catalog.clock_timestamp() + interval '30 s' $$")
		d = w.doctor()
		d.hasOnly(isNote, "clock", "behind the server's", "ages", "NTP")
	})
}

func TestDoctorHearsThatNotificationsDoNotArrive(t *testing.T) {
	onPostgres(t, func(w *world) {
		u, err := url.Parse(w.dsn)
		require.NoError(w, err)
		u.Host = between(w.T, u.Host, `LISTEN "dblock_`, `LISTEN "d_lock_`)
		w.limits, w.echo = usual, 10*time.Millisecond // nothing is on its way
		d := w.at(u.String()).doctor()
		d.hasOnly(isNote, "LISTEN", "not heard within 10ms", "clients poll")
		d.hasOnly(isOK, "pooler")
	})
}

// A check ends before the table does that somebody has locked, and the others are made.
func TestDoctorIsNotHeldUpByATableThatIsLocked(t *testing.T) {
	onPostgres(t, func(w *world) {
		tx, _ := w.begin()
		w.in(tx, "LOCK TABLE dblock_schema")
		s, err := sourceOf(&options{}, environment("DBLOCK_DSN="+w.dsn))
		require.NoError(w, err)
		d, err := s.pool(false, io.Discard)
		require.NoError(w, err)
		defer d.Close()
		e := &examination{database: d, limits: limits{check: time.Hour, lend: patience, echo: patience}}
		ctx, cancel := context.WithCancelCause(w.Context())
		go func() {
			w.until(func() bool {
				var waits bool
				err := w.db.QueryRow("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = " +
					"'dblock_schema'::regclass)").Scan(&waits)
				return err == nil && waits
			})
			cancel(errors.New("no answer for long"))
		}()
		look := func(ctx context.Context, names ...string) (d diagnosis) {
			d.TB = w.T
			for _, c := range postgresChecks {
				if slices.Contains(names, c.name) {
					d.made = append(d.made, c.run(ctx, e)...)
				}
			}
			return d
		}
		look(ctx, "schema").hasOnly(isProblem, "schema", "no answer for long")
		look(w.Context(), "pooler", "LISTEN").hasOnly(isOK, "LISTEN")
		// as all are when the time of --timeout is over
		look(ctx, "clock").hasOnly(isUnknown, "clock", "no answer for long")
	})
}

func TestACheckTakesFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := check{"x", func(ctx context.Context, _ *examination) ([]finding, error) {
			<-ctx.Done()
			return nil,
				ctx.Err()
		}}
		began := time.Now()
		made := waits.run(t.Context(), &examination{limits: usual})
		if took := time.Since(began); took != 5*time.Second || len(made) != 1 || made[0].Level != isUnknown ||
			!strings.Contains(made[0].Found, "no answer within 5s") {
			t.Errorf("%v, %+v", took, made)
		}
	})
}

// Aurora tells no more of itself than a function.
func TestDoctorSeesAurora(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.exec("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '15.12.1' $$")
		w.doctor().hasOnly(isNote, "version", "Amazon Aurora", "failover")
	})
}

func TestDoctorSeesNoOtherVersionThanTheServers(t *testing.T) {
	eachKind(t, func(w *world) {
		var version string
		query := "SELECT version()"
		if w.engine == migrate.SQLite {
			query = "SELECT sqlite_version()"
		} else if w.engine == migrate.Postgres {
			query = "SHOW server_version"
		}
		require.NoError(w, w.db.QueryRow(query).Scan(&version))
		d := w.doctor()
		want := isOK
		if w.engine != migrate.SQLite {
			want = versionOf(map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL",
				"mariadb": "MariaDB"}[w.Name()[strings.LastIndex(w.Name(), "/")+1:]], version).Level
		}
		d.hasOnly(want, "version", version)
	})
}

func TestDoctorJudgesHowAPrimaryIsFollowed(t *testing.T) {
	for _, c := range []struct {
		replication
		want level
		says string
	}{
		{replication{commit: "on", timeline: 1}, isOK, "no standby follows"},
		{replication{commit: "on", timeline: 3}, isNote, "timeline 3"},
		{replication{commit: "on", standbys: 1}, isNote, "asynchronously"},
		{replication{commit: "on", names: "s2", timeline: 1}, isProblem, "0 of the 1 standbys"},
		// those that follow are others
		{replication{commit: "on", names: "s2", standbys: 2}, isProblem, "0 of the 1 standbys"},
		// dblock's wait all the same
		{replication{commit: "off", names: "s2", standbys: 1}, isProblem, "commits hang"},
		{replication{commit: "local", names: "s2"}, isNote, "synchronous_commit is local"},
		{replication{commit: "on", names: "s2", standbys: 1, confirm: 1}, isNote, "no other standby"},
		{replication{commit: "on", names: "s2", standbys: 2, confirm: 1}, isOK, "commits wait for s2"},
		{replication{commit: "on", names: "ANY 2 (s2, s3)", standbys: 2, confirm: 1}, isProblem, "1 of the 2 standbys"},
		{replication{commit: "on", names: "first 2(s2, s3)", standbys: 2, confirm: 2}, isNote, "no other standby"},
		{replication{commit: "on", names: "2 (s2, s3, s4)", standbys: 3, confirm: 2}, isOK, "commits wait for 2 (s2"},
		{replication{commit: "on", names: `"s2 (old)"`, standbys: 2, confirm: 1}, isOK, "old"},
	} {
		if f := c.judge(); f.Level != c.want || !strings.Contains(f.Found, c.says) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
