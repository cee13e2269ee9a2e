package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
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
	return diagnose(w.T, shell{[]string{"DBLOCK_DSN=" + w.dsn}, w.limits, ""}, arguments...)
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

// exec runs statements on the test's own database.
func (w *world) exec(statements ...string) {
	w.Helper()
	for _, s := range statements {
		require.NoError(w, require.ErrOf(w.db.ExecContext(w.Context(), s)), s)
	}
}

// A server of tests is seldom durable, and others may use it, too. SQLite's settings are never
// known.
func TestDoctorFindsNothingWhereNothingIs(t *testing.T) {
	of := []string{"version", "connections", "durability", "replication", "transactions"}
	eachKind(t, func(w *world) {
		w.lock("n")
		d := w.doctor()
		for _, f := range d.made {
			if f.Level != isOK && !slices.Contains(of, f.Check) && (w.engine != migrate.SQLite ||
				f.Check != "settings") {
				w.Errorf("%+v", f)
			}
		}
		if len(d.made) < len(checksOf(w.engine))+1 {
			w.Errorf("%d findings of %d checks", len(d.made), len(checksOf(w.engine)))
		}
		d.hasOnly(isOK, "connection")
		d.hasOnly(isOK, "schema", fmt.Sprintf("version %d", driver.SchemaVersion))
		d.hasOnly(isOK, "sessions", "1 clients")
	})
}

func TestDoctorChangesNothing(t *testing.T) {
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
	names, err := column(w.db.QueryContext(w.Context(), tables))
	require.NoError(w, err)
	var all []string
	for _, name := range names {
		var n int
		require.NoError(w, w.db.QueryRowContext(w.Context(), "SELECT count(*) FROM "+name).Scan(&n))
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	return strings.Join(all, ", ")
}

// name is that of the test's own database.
func (w *world) name() string {
	name, _, _ := strings.Cut(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?")
	return name
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
		d.hasOnly(isUnknown, "sessions", "see schema")
		if w.engine != migrate.SQLite {
			d.hasOnly(isUnknown, "privileges", "see schema")
		}
		assert.Equal(w, d.status, exitFailed, "status")
	})
}

// A client that began an hour ago goes on when the tables come to a made-up later version.
func TestDoctorSeesClientsOfOlderBuilds(t *testing.T) {
	const version = driver.SchemaVersion
	eachKind(t, func(w *world) {
		yesterday := "tstamp - INTERVAL '1' DAY"
		if w.engine == migrate.SQLite {
			yesterday = "datetime(tstamp, '-1 day')"
		}
		now, hour := time.Now().UnixMicro(), time.Hour.Microseconds()
		w.exec("UPDATE dblock_migrations SET tstamp = "+yesterday,
			fmt.Sprintf("INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES ('old', 'pastville', "+
				"7, 'orders', %d)", now-hour),
			fmt.Sprintf("INSERT INTO dblock_heartbeats (session_id, expires_at) VALUES ('old', %d)", now+hour))
		w.exec(fmt.Sprintf("INSERT INTO dblock_migrations (version_id, is_applied) VALUES (%d, true)", version+1),
			fmt.Sprintf("UPDATE dblock_schema SET version = %d", version+1))
		w.lock("a client of this build")
		d := w.doctor()
		d.hasOnly(isNote, "sessions", fmt.Sprintf("orders of pastville:7 began before version %d", version+1),
			"deploy the new build")
		assert.Equal(w, strings.Count(d.text("sessions"), "began before"), 1, "clients are said to be older")

		// The same, of a version that older builds cannot work with.
		w.exec(fmt.Sprintf("DELETE FROM dblock_migrations WHERE version_id = %d", version),
			fmt.Sprintf("UPDATE dblock_migrations SET version_id = %d WHERE version_id = %d", version, version+1),
			fmt.Sprintf("UPDATE dblock_schema SET version = %d", version))
		d = w.doctor()
		if w.engine == migrate.Postgres { // its times have no zone
			d.hasOnly(isNote, "sessions", "if the migration ran in the time zone of this session",
				fmt.Sprintf("serve builds for %d and later", version), "see which build it has")
			w.exec(fmt.Sprintf("UPDATE dblock_sessions SET started_at = %d WHERE id = 'old'", now-15*hour))
			d = w.doctor()
			d.hasOnly(isProblem, "sessions", "if the migration ran in the time zone of this session")
		}
		d.hasOnly(isProblem, "sessions", fmt.Sprintf("serve builds for %d and later", version), "stop it")

		w.exec("DELETE FROM dblock_sessions WHERE id = 'old'")
		d = w.doctor()
		d.hasOnly(isOK, "sessions", "1 clients")

		w.exec("DROP TABLE dblock_migrations")
		d = w.doctor()
		d.hasOnly(isUnknown, "sessions", "dblock_migrations", "its own history")
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

func TestDoctorsExitStatusIsForScripts(t *testing.T) {
	w := onSQLite(t)
	w.exec("PRAGMA journal_mode = WAL")
	s := w.run("doctor", "--strict")
	if s.status != 0 || s.err != "" || strings.Contains(s.out, "the file is in WAL mode") ||
		!strings.Contains(s.out, "problems: 0, unknown: 1, notes: 0, ok: ") {
		t.Errorf("nothing to say, and what is unknown: %+v", s)
	}
	contains(t, w.must("doctor", "--all"), "LEVEL", "the file is in WAL mode")
	_ = w.client.Close(t.Context())
	w.exec("PRAGMA journal_mode = DELETE")
	contains(t, w.must("doctor"), "note", "not in WAL mode", "notes: 1")
	if s := w.run("doctor", "--strict"); s.status != exitFailed || s.err != "" {
		t.Errorf("a note, and --strict: %+v", s)
	}
	w.exec("UPDATE dblock_schema SET version = 0")
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

// The tables of the command are those that the documents promise.
func TestDoctorKnowsTheVersionsAndRightsOfTheDocuments(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	for _, s := range servers {
		contains(t, string(readme), fmt.Sprintf("| %s | %s | %s and later |", s.name, strings.Join(s.tested, ", "),
			s.oldest))
	}
	for file, rights := range map[string][]right{"postgres-app.sql": postgresRights, "mysql-app.sql": mysqlRights} {
		var want, have []string
		for _, grant := range grants(t, file) {
			want = append(want, grant.each...)
		}
		for _, r := range rights {
			for _, each := range r.each {
				have = append(have, each+" on "+r.on)
			}
		}
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
	for _, m := range regexp.MustCompile(`(?m)^GRANT ([A-Z, ]+) ON ((?:[a-z_.]+(?:, )?)+) TO orders_app(?:@'%')?;$`).FindAllStringSubmatch(string(text), -1) {
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

func TestDoctorTellsVersionsApart(t *testing.T) {
	for _, c := range []struct {
		name, version string
		want          level
	}{
		{"PostgreSQL", "15.18 (Debian 15.18-0+deb12u1)", isOK},
		{"PostgreSQL", "18.6", isOK},
		{"PostgreSQL", "17.2", isNote},
		{"PostgreSQL", "19beta1", isNote},
		{"PostgreSQL", "14.0", isNote},
		{"PostgreSQL", "13.23", isProblem},
		{"PostgreSQL", "CockroachDB CCL v25.1.0 (x86_64-pc-linux-gnu)", isProblem},
		{"PostgreSQL", "15.12-YB-2025.1.0.0-b0", isProblem},
		{"MySQL", "9.7.4-2", isOK},
		{"MySQL", "8.0.30-Vitess", isNote},
		{"MySQL", "9.7.0-Vitess", isNote},
		{"MySQL", "8.0.25-OceanBase-v4.3.5.0", isProblem},
		{"MySQL", "8.0.43", isNote},
		{"MySQL", "5.7.44-log", isProblem},
		{"MySQL", "8.0.11-TiDB-v8.5.1", isNote},
		{"MariaDB", "10.11.18-MariaDB-0+deb12u1", isOK},
		{"MariaDB", "10.6.22-MariaDB", isNote},
		{"MariaDB", "11.8.3-MariaDB", isOK},
		{"MariaDB", "11.4.7-MariaDB", isNote},
		{"MariaDB", "10.5.29-MariaDB", isProblem},
	} {
		if f := versionOf(c.name, c.version); f.Level != c.want {
			t.Errorf("%s %s: %+v", c.name, c.version, f)
		}
	}
}

func TestDoctorAllowsForTheTimeThatTheAnswerTook(t *testing.T) {
	for _, c := range []struct {
		ahead, give time.Duration
		want        level
		says        string
	}{
		{0, time.Millisecond, isOK, ""},
		{-time.Second, time.Millisecond, isOK, "1s behind"},
		{3 * time.Second, 2 * time.Second, isOK, "3s ahead"},
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

func TestDoctorCountsWhatAClientNeeds(t *testing.T) {
	for _, c := range []struct {
		most, use int
		want      level
	}{{0, 500, isOK}, {-1, 500, isOK}, {100, 79, isOK}, {100, 80, isNote}, {100, 96, isNote}, {100, 97, isProblem},
		{10, 6, isOK}, {10, 7, isProblem}} {
		if f := (limit{"x", c.most, c.use}).judge(4); f.Level != c.want {
			t.Errorf("%d of %d: %+v", c.use, c.most, f)
		}
	}
}

// between passes on what a client and a server say. Of what the client says, it changes one text to
// another of the same length.
func between(t *testing.T, server, from, to string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	})
	pass := func(into, out net.Conn, change func([]byte) []byte) {
		defer into.Close()
		defer out.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := out.Read(buffer)
			if err != nil {
				return
			}
			if _, err := into.Write(change(buffer[:n])); err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = client.Close(), behind.Close() })
			all.Go(func() {
				pass(behind, client, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(from), []byte(to)) })
			})
			all.Go(func() { pass(client, behind, func(b []byte) []byte { return b }) })
		}
	})
	return listener.Addr().String()
}
