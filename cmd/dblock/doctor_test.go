package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// diagnosis is all that doctor found.
type diagnosis struct {
	testing.TB
	made   []finding
	status int
}

func (w *world) doctor(arguments ...string) diagnosis {
	w.Helper()
	return diagnose(w.T, shell{[]string{"DBLOCK_DSN=" + w.dsn}, ""}, arguments...)
}

func diagnose(t *testing.T, in shell, arguments ...string) diagnosis {
	t.Helper()
	s := in.run(t, append([]string{"doctor", "--json", "--all"}, arguments...)...)
	assert.Equal(t, s.err, "", "dblock doctor")
	d := diagnosis{TB: t, status: s.status}
	for line := range strings.Lines(s.out) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		d.made = append(d.made, f)
	}
	return d
}

// has checks that a check has a finding with these texts, and of none other than these levels.
func (d diagnosis) has(l level, check string, parts ...string) {
	d.Helper()
	if !slices.ContainsFunc(d.made, func(f finding) bool {
		return f.Check == check && f.Level == l && !slices.ContainsFunc(parts,
			func(p string) bool { return !strings.Contains(f.Found+"; "+f.Do, p) })
	}) {
		d.Errorf("no %s of %q with %q:\n%s", l, check, parts, d.text(check))
	}
}

// hasOnly is has where each finding of the check has that level.
func (d diagnosis) hasOnly(l level, check string, parts ...string) {
	d.Helper()
	d.has(l, check, parts...)
	if slices.ContainsFunc(d.made, func(f finding) bool { return f.Check == check && f.Level != l }) {
		d.Errorf("%q has more than %s:\n%s", check, l, d.text(check))
	}
}

func (d diagnosis) text(check string) string {
	var b strings.Builder
	for _, f := range d.made {
		if f.Check == check {
			fmt.Fprintf(&b, "%s: %s; %s\n", f.Level, f.Found, f.Do)
		}
	}
	return b.String()
}

// as returns a user that is made for the test, with the rights that the documents have for a role,
// and a data source of the command for it.
func (w *world) as(role string) (user string, dsn string) {
	w.Helper()
	u, err := url.Parse(w.dsn)
	require.NoError(w, err)
	user = w.name()
	create, drop := "CREATE USER "+user+"@'%' IDENTIFIED BY 'x'", "DROP USER "+user+"@'%'"
	if w.engine == migrate.Postgres {
		create, drop = "CREATE ROLE "+user+" LOGIN PASSWORD 'x'", "DROP OWNED BY "+user+
			"; DROP ROLE "+user
	}
	w.exec(create)
	w.Cleanup(func() { assert.NoError(w, assert.ErrOf(w.db.Exec(drop))) })
	for _, g := range grants(w.T, string(w.engine)+"-"+role+".sql") {
		w.exec(strings.NewReplacer("orders_"+role, user, "orders.", w.name()+".", ";", "").Replace(g.text))
	}
	u.User = url.UserPassword(user, "x")
	return user, u.String()
}

// A test's own server has no standby.
func TestDoctorFindsNothingWhereNothingIs(t *testing.T) {
	eachKind(t, func(w *world) {
		w.lock("n")
		d := w.doctor()
		for _, f := range d.made {
			if f.Level != isOK {
				w.Errorf("%+v", f)
			}
		}
		d.hasOnly(isOK, "connection")
		d.hasOnly(isOK, "schema", fmt.Sprintf("version %d", driver.SchemaVersion))
		d.hasOnly(isOK, "session", "can begin")
		d.hasOnly(isOK, "listening", "in milliseconds")
		d.hasOnly(isOK, "TTL", "no failover is known")
		if w.engine != migrate.SQLite {
			d.hasOnly(isOK, "privileges", "all rights of docs/privileges")
			d.hasOnly(isOK, "clock", "the server's (±")
		}
	})
}

func TestDoctorLeavesNothingBehind(t *testing.T) {
	eachKind(t, func(w *world) {
		before := w.rows()
		w.doctor()
		if after := w.rows(); after != before {
			w.Errorf("%s, before: %s", after, before)
		}
	})
}

// rows are how many there are in each table.
func (w *world) rows() string {
	w.Helper()
	tables := "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY 1"
	if w.engine != migrate.SQLite {
		tables = "SELECT table_name FROM information_schema.tables WHERE table_schema IN ('public', '" + w.name() +
			"') ORDER BY 1"
	}
	rows, err := w.db.QueryContext(w.Context(), tables)
	require.NoError(w, err)
	var names, all []string
	for rows.Next() {
		names = append(names, "")
		require.NoError(w, rows.Scan(&names[len(names)-1]))
	}
	require.NoError(w, errors.Join(rows.Err(), rows.Close()))
	for _, name := range names {
		var n int
		require.NoError(w, w.db.QueryRowContext(w.Context(), "SELECT count(*) FROM "+name).Scan(&n))
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	return strings.Join(all, ", ")
}

func TestDoctorSeesTheVersionOfTheTables(t *testing.T) {
	eachKind(t, func(w *world) {
		w.exec("UPDATE dblock_schema SET version = 99")
		d := w.doctor()
		d.hasOnly(isNote, "schema", "version 99", "install the newer command")

		w.exec("UPDATE dblock_schema SET usable_from = 99")
		d = w.doctor()
		d.hasOnly(isProblem, "schema", "serves builds for version 99", "docs/upgrading.md")

		w.exec("UPDATE dblock_schema SET usable_from = 1, version = 0")
		d = w.doctor()
		d.hasOnly(isProblem, "schema", "tables are missing", "a migration is under way", "dblock migrate up")

		w.must("migrate", "down", "--yes")
		d = w.doctor()
		d.hasOnly(isProblem, "schema", "tables are missing", "dblock migrate up")
		assert.Equal(w, len(d.made), 2, "findings")
		assert.Equal(w, d.status, exitFailed, "status")
	})
}

func TestDoctorSaysWhyADatabaseCannotBeReached(t *testing.T) {
	const secret = "hunter2"
	for _, scheme := range []string{"postgres", "mysql"} {
		d := diagnose(t, shell{environment: []string{"DBLOCK_DSN=" + scheme + "://a:" + secret + "@127.0.0.1:1/x"}})
		d.hasOnly(isProblem, "connection", "127.0.0.1:1 cannot be reached", "refused")
		if text := d.made[0].Found; printable(text) != text || strings.Contains(text, "database=") {
			t.Errorf("the finding is %s", printable(text))
		}
		if d.status != exitFailed || len(d.made) != 1 || strings.Contains(d.text("connection"), secret) {
			t.Errorf("status %d: %v", d.status, d.made)
		}
	}
	missing := filepath.Join(t.TempDir(), "mistyped.db")
	diagnose(t, shell{}, "--dsn", "sqlite://"+missing).hasOnly(isProblem, "connection", missing)
	state := t.TempDir()
	diagnose(t, shell{environment: []string{"XDG_STATE_HOME=" + state}}, "--local").hasOnly(isProblem, "connection",
		state)
	for _, path := range []string{missing, filepath.Join(state, "dblock")} {
		assert.Error(t, assert.ErrOf(os.Stat(path)), path, "was made")
	}
	if s := alone(t, "doctor"); s.status != exitUsage || !strings.Contains(s.err, "DBLOCK_DSN") {
		t.Errorf("without a database: %+v", s)
	}
}

func TestDoctorDoesNotWaitForAServerThatSaysNothing(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	require.NoError(t, err)
	defer silent.Close()
	for _, scheme := range []string{"postgres", "mysql"} {
		d := diagnose(t, shell{environment: []string{"DBLOCK_DSN=" + scheme + "://a@" + silent.Addr().String() + "/x"}},
			"--timeout", "100ms")
		d.hasOnly(isProblem, "connection", "no answer within 100ms (--timeout)")
	}
}

func TestDoctorSeesAFileThatIsNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "letter.db")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("Dear Sir or Madam, ", 100)), 0o600))
	d := diagnose(t, shell{}, "--dsn", "sqlite://"+file)
	d.hasOnly(isProblem, "connection", "not a database")
	assert.Equal(t, d.status, exitFailed, "status")
}

func TestDoctorsExitStatusIsForScripts(t *testing.T) {
	w := onSQLite(t)
	s := w.run("doctor", "--strict")
	if s.status != 0 || s.err != "" || s.out != "problems: 0, unknown: 0, notes: 0, ok: 5\n" {
		t.Errorf("nothing to say: %+v", s)
	}
	contains(t, w.must("doctor", "--all"), "LEVEL", "can begin")
	w.exec("UPDATE dblock_schema SET version = 99")
	contains(t, w.must("doctor"), "note", "version 99", "notes: 1")
	if s := w.run("doctor", "--strict"); s.status != exitFailed || s.err != "" {
		t.Errorf("a note, and --strict: %+v", s)
	}
	w.exec("CREATE TRIGGER audit AFTER INSERT ON dblock_locks BEGIN SELECT 1; END")
	s = w.run("doctor")
	if s.status != exitFailed || s.err != "" || strings.Index(s.out, "problem ") > strings.Index(s.out, "note ") {
		t.Errorf("a problem: %+v", s)
	}
	s = w.run("doctor", "--json")
	for line := range strings.Lines(s.out) {
		if err := json.Unmarshal([]byte(line), new(finding)); err != nil || strings.Contains(line, `"ok"`) {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// The rights of the command are those that the documents promise.
func TestDoctorKnowsTheRightsOfTheDocuments(t *testing.T) {
	for file, engine := range map[string]migrate.Engine{"postgres-app.sql": migrate.Postgres,
		"mysql-app.sql": migrate.MySQL} {
		var want []string
		for _, grant := range grants(t, file) {
			want = append(want, grant.each...)
		}
		have := needed(engine)
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) {
			t.Errorf("%s:\n%v\nhere:\n%v", file, want, have)
		}
	}
}

// grant is a line of docs/privileges on tables.
type grant struct {
	text string
	each []string // RIGHT on table
}

func grants(t *testing.T, file string) (all []grant) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "privileges", file))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^GRANT ([A-Z, ]+) ON ((?:[a-z_.]+(?:, )?)+) TO orders_[a-z]+(?:@'%')?;$`).FindAllStringSubmatch(string(text), -1) {
		g := grant{text: m[0]}
		for table := range strings.SplitSeq(strings.ReplaceAll(m[2], "orders.", ""), ", ") {
			for each := range strings.SplitSeq(m[1], ", ") {
				g.each = append(g.each, each+" on "+table)
			}
		}
		all = append(all, g)
	}
	return all
}

func TestDoctorSeesWhichRightsAreMissing(t *testing.T) {
	eachServer(t, func(w *world) {
		user, dsn := w.as("app")
		who := user
		if w.engine == migrate.MySQL {
			who += "@'%'"
		}
		doctor := func() diagnosis { return w.at(dsn).doctor() }
		doctor().hasOnly(isOK, "privileges", user)
		for _, right := range []string{"SELECT", "INSERT", "DELETE"} {
			w.exec("REVOKE " + right + " ON dblock_waiters FROM " + who)
			doctor().hasOnly(isProblem, "privileges", " lacks "+right+" on dblock_waiters;", "-app.sql")
			w.exec("GRANT " + right + " ON dblock_waiters TO " + who)
		}
		w.exec("REVOKE UPDATE ON dblock_incarnation FROM " + who)
		doctor().hasOnly(isNote, "privileges", "lacks UPDATE on dblock_incarnation", "package quorum")
		if w.engine != migrate.Postgres {
			return
		}
		w.exec("REVOKE EXECUTE ON FUNCTION dblock_durable() FROM PUBLIC", "ALTER TABLE dblock_locks ENABLE ROW LEVEL "+
			"SECURITY")
		doctor().has(isProblem, "privileges", " lacks EXECUTE on dblock_durable(), a policy of row level security on "+
			"dblock_locks;")
		w.exec("CREATE POLICY app ON dblock_locks USING (true)")
		doctor().has(isProblem, "privileges", " lacks EXECUTE on dblock_durable();")
		w.exec("REVOKE ALL ON dblock_schema FROM " + user)
		doctor().hasOnly(isProblem, "schema", "permission denied")
	})
}

// Doctor refuses what a client refuses.
func TestDoctorSeesThatNoClientCanBegin(t *testing.T) {
	eachServer(t, func(w *world) {
		with := func(setting string) diagnosis { return w.at(w.parameter(setting)).doctor() }
		switch w.kind {
		case dbtest.KindPostgres:
			with("default_transaction_read_only=on").hasOnly(isProblem, "session", "the database is read-only",
				"target_session_attrs", "let this user's sessions write")
			return
		case dbtest.KindMySQL:
			with("transaction_read_only=1").hasOnly(isProblem, "session", "the database is read-only", "primary")
		default:
			with("tx_read_only=1").hasOnly(isProblem, "session", "the database is read-only", "primary")
		}
		with("autocommit=0").hasOnly(isProblem, "session", "cannot begin", "autocommit off")
		with("sql_select_limit=1000").hasOnly(isProblem, "session", "cannot begin", "sql_select_limit = 1000")
	})
}

func TestDoctorSeesThatAWriterDoesNotEnd(t *testing.T) {
	w := onSQLite(t)
	tx, _ := w.begin()
	w.in(tx, "UPDATE dblock_schema SET version = version")
	w.doctor().hasOnly(isNote, "session", "no client can begin at the moment")
}

// The functions of pg_catalog come first unless the search_path has it: so this PostgreSQL has
// another clock. On MySQL, timestamp makes NOW() another in a session.
func TestDoctorSeesThatClocksDiffer(t *testing.T) {
	eachServer(t, func(w *world) {
		ahead := func(d time.Duration) diagnosis {
			if w.engine == migrate.MySQL {
				return w.at(w.parameter(fmt.Sprint("timestamp=", time.Now().Add(d).Unix()))).doctor()
			}
			w.exec(fmt.Sprintf("CREATE OR REPLACE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql "+
				"VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() + interval '%v s' $$", d.Seconds()))
			return w.doctor()
		}
		if w.engine == migrate.Postgres {
			w.exec("CREATE SCHEMA skew",
				fmt.Sprintf("ALTER DATABASE %s SET search_path = skew, pg_catalog, public", w.name()))
		}
		ahead(-time.Hour).hasOnly(isProblem, "clock", "ahead of the server's", "refuse", "NTP")
		ahead(50*time.Second).hasOnly(isNote, "clock", "behind the server's", "ages", "NTP")
	})
}

func TestDoctorAllowsForTheTimeThatTheAnswerTook(t *testing.T) {
	for _, c := range []struct {
		ahead, give time.Duration
		want        level
		says        string
	}{
		{0, time.Millisecond, isOK, ""},
		{-time.Second, time.Millisecond, isOK, "1s behind the"},
		{3 * time.Second, 2 * time.Second, isOK, "3s ahead of"},
		{3 * time.Second, time.Second, isNote, "ages"},
		{-time.Minute, time.Second, isNote, "1m0s behind"},
		{61 * time.Second, 2 * time.Second, isNote, ""},
		{61 * time.Second, 0, isProblem, "refuse its slots"},
		{-time.Hour, 0, isProblem, "come late"},
	} {
		f := apart(c.ahead, c.give)
		if f.Level != c.want {
			t.Errorf("%v ± %v: %+v", c.ahead, c.give, f)
		}
		contains(t, f.Found, c.says)
	}
}

func TestDoctorComparesTTLsWithAFailover(t *testing.T) {
	takes := failover{10 * time.Second, "it takes long"}
	for _, c := range []struct {
		left []time.Duration
		want level
		says string
	}{
		{nil, isOK, "0 clients"},
		{[]time.Duration{15 * time.Second, 8 * time.Second}, isOK, "2 clients"}, // a TTL of 10 s, a fifth ago
		{[]time.Duration{15 * time.Second, 4 * time.Second, 2 * time.Second}, isNote, "a TTL of 5s or less: 2"},
	} {
		if f := takes.judge(c.left); f.Level != c.want || !strings.Contains(f.Found, c.says) ||
			!strings.Contains(f.Found, "it takes long") {
			t.Errorf("%v: %+v", c.left, f)
		}
	}
}

func TestDoctorReadsHowLongAClusterWaits(t *testing.T) {
	for options, want := range map[string]time.Duration{
		"evs.join_retrans_period = PT1S; evs.suspect_timeout = PT7.5S; evs.version = 1": 7500 * time.Millisecond,
		"evs.suspect_timeout=PT1M30S":             90 * time.Second,
		"evs.inactive_timeout = PT15S; gcs.x = 1": 0,
		"": 0,
	} {
		galera := ofCluster(map[string]string{"wsrep_on": "ON", "wsrep_provider_options": options})
		assert.Equal(t, galera.takes, want, options)
	}
	group := map[string]string{"group_replication_group_name": "g", "group_replication_member_expel_timeout": "5"}
	assert.Equal(t, ofCluster(group).takes, 10*time.Second)
	assert.Equal(t, ofCluster(map[string]string{"wsrep_on": "OFF"}), failover{}, "a single server")
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
		e := &examination{database: d, backend: inside.Of(d.locks()).Backend}
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
			for _, c := range checks {
				if slices.Contains(names, c.name) {
					d.made = append(d.made, c.run(ctx, e)...)
				}
			}
			return d
		}
		look(ctx, "schema").hasOnly(isProblem, "schema", "no answer for long")
		look(w.Context(), "listening").hasOnly(isOK, "listening")
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
		made := waits.run(t.Context(), nil)
		if took := time.Since(began); took != 5*time.Second || len(made) != 1 || made[0].Level != isUnknown ||
			!strings.Contains(made[0].Found, "no answer within 5s") {
			t.Errorf("%v, %+v", took, made)
		}
	})
}
