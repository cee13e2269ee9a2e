package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func TestTheDatabaseIsTheOneThatIsNamed(t *testing.T) {
	home := t.TempDir()
	cnf :=
		"[mysqld]\nskip-networking\n[client]\nuser=app\npassword=\"p;w#\"\nhost=db.example.com\nport=3307\n" +
			"database=orders\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(cnf), 0o600))
	t.Setenv("PGPASSWORD", "")
	for _, c := range []struct {
		says        string
		options     options
		environment []string
		want        string
		engine      migrate.Engine
	}{
		{"the flag before the variable", options{dsn: "postgres://a@one/x"}, []string{"DBLOCK_DSN=postgres://a@two/y"},
			`PostgreSQL database "x" of one:5432`, migrate.Postgres},
		{"the variable", options{}, []string{"DBLOCK_DSN=postgresql://a:secret@two:6543/y"},
			`PostgreSQL database "y" of two:6543`, migrate.Postgres},
		{"MySQL's URL", options{dsn: "mysql://a@one/x"}, nil, `MySQL database "x" of one:3306`, migrate.MySQL},
		{"the driver's own form", options{dsn: "a@tcp(one:3307)/x?tls=preferred"}, nil,
			`MySQL database "x" of one:3307`, migrate.MySQL},
		{"a socket", options{dsn: "mysql://a@/x?socket=/run/my.sock"}, nil, `MySQL database "x" of /run/my.sock`,
			migrate.MySQL},
		{"what ~/.my.cnf adds", options{dsn: "mysql:///"}, []string{"HOME=" + home},
			`MySQL database "orders" of db.example.com:3307`, migrate.MySQL},
		{"what ~/.my.cnf does not change", options{dsn: "mysql://b@one:1/x"}, []string{"HOME=" + home},
			`MySQL database "x" of one:1`, migrate.MySQL},
		{"a file", options{dsn: "sqlite:///var/app.db"}, nil, "SQLite file /var/app.db", migrate.SQLite},
		{"a file in this folder", options{dsn: "sqlite://app.db"}, nil, "SQLite file app.db", migrate.SQLite},
		{"a file of one's own", options{local: true}, []string{"XDG_STATE_HOME=/state"},
			"SQLite file /state/dblock/locks.db", migrate.SQLite},
	} {
		s, err := sourceOf(&c.options, environment(c.environment...))
		if err != nil || s.String() != c.want || s.engine != c.engine {
			t.Errorf("%s: %v, %v: want %s", c.says, s, err, c.want)
		}
	}
	s, err := sourceOf(&options{dsn: "mysql:///"}, environment("HOME="+home))
	if err != nil || s.mysql.User != "app" || s.mysql.Passwd != "p;w#" {
		t.Errorf("of ~/.my.cnf: %q, %q, %v", s.mysql.User, s.mysql.Passwd, err)
	}
}

// What pgxpool reads of a data source is no setting of the server, which would refuse it.
func TestADataSourceOfPgxpoolIsOne(t *testing.T) {
	const pool = "pool_max_conns=9&pool_min_conns=2&pool_min_idle_conns=1&pool_max_conn_lifetime=1h&" +
		"pool_max_conn_lifetime_jitter=1m" +
		"&pool_max_conn_idle_time=30m&pool_health_check_period=1m&pool_ping_timeout=1s"
	onPostgres(t, func(w *world) {
		w = w.at(w.parameter(pool))
		contains(t, w.must("ls"), "No lock is held")
		w.doctor().hasOnly(isOK, "connection", "PostgreSQL database")
	})
	s := alone(t, "ls", "--dsn", "postgres://a@127.0.0.1:1/x?pool_max_conns=many")
	if s.status != exitUsage || !strings.Contains(s.err, "pool_max_conns") {
		t.Errorf("%+v", s)
	}
}

func TestNoDatabaseIsNoDatabaseOfOnesOwn(t *testing.T) {
	s := alone(t, "ls")
	if s.status != exitUsage || !strings.Contains(s.err, "DBLOCK_DSN") || !strings.Contains(s.err, "--local") {
		t.Errorf("%+v", s)
	}
	missing := filepath.Join(t.TempDir(), "mistyped.db")
	if s := alone(t, "ls", "--dsn", "sqlite://"+missing); s.status != exitFailed {
		t.Errorf("%+v", s)
	}
	assert.Error(t, assert.ErrOf(os.Stat(missing)), "a file was made where a path was mistyped")
}

func TestLocalLocksAreThereFromTheFirstUseOn(t *testing.T) {
	state := t.TempDir()
	s := shell{environment: []string{"XDG_STATE_HOME=" + state}}.run(t, "ls", "--local")
	if s.status != 0 || !strings.Contains(s.out, "No lock is held") {
		t.Fatalf("%+v", s)
	}
	if info, err := os.Stat(filepath.Join(state, "dblock")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}

func TestAPasswordShowsNowhere(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct {
		says        string
		environment []string
		arguments   []string
	}{
		{"on the command line", nil, []string{"--dsn", "postgres://a:" + secret + "@127.0.0.1:1/x"}},
		{"as a parameter", nil, []string{"--dsn", "postgres://a@127.0.0.1:1/x?password=" + secret}},
		{"of MySQL on the command line", nil, []string{"--dsn", "mysql://a:" + secret + "@127.0.0.1:1/x"}},
		{"in the driver's own form", nil, []string{"--dsn", "a:" + secret + "@tcp(127.0.0.1:1)/x"}},
		{"of a server that is not there", []string{"DBLOCK_DSN=postgres://a:" + secret + "@127.0.0.1:1/x"}, nil},
		{"of MySQL that is not there", []string{"DBLOCK_DSN=mysql://a:" + secret + "@127.0.0.1:1/x"}, nil},
		{"in a URL that is none", []string{"DBLOCK_DSN=postgres://a:" + secret + "@127.0.0.1:port/x"}, nil},
		{"in a URL of MySQL that is none", []string{"DBLOCK_DSN=mysql://a:" + secret + "@127.0.0.1:port/x"}, nil},
		{"in a data source of nothing", []string{"DBLOCK_DSN=a:" + secret + "@127.0.0.1/x"}, nil},
		{"behind another scheme", []string{"DBLOCK_DSN=redis://a:" + secret + "@127.0.0.1/0"}, nil},
		{"of a pool that is none", []string{"DBLOCK_DSN=postgres://a:" + secret + "@127.0.0.1/x?pool_max_conns=many"},
			nil},
		{"with a percent sign", []string{"DBLOCK_DSN=postgres://a:" + secret + "%@127.0.0.1/x"}, nil},
	} {
		s := shell{environment: c.environment}.run(t, append([]string{"ls", "--timeout", "5s"}, c.arguments...)...)
		if strings.Contains(s.err+s.out, secret) {
			t.Errorf("%s: %+v", c.says, s)
		}
		if s.status == 0 || s.err == "" || len(c.arguments) > 0 && s.status != exitUsage { // those it does not even try
			t.Errorf("%s: status %d", c.says, s.status)
		}
	}
}
