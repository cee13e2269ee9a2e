package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// itself makes the test binary the command, so that it is tested as a process.
const itself = "DBLOCK_TEST_COMMAND"

// stubborn makes it a process that takes no notice of TERM, and says in a file that it lives.
const stubborn = "DBLOCK_TEST_STUBBORN"

func TestMain(m *testing.M) {
	if file := os.Getenv(stubborn); file != "" {
		lives(file)
	}
	if os.Getenv(itself) != "" {
		main()
	}
	os.Exit(dbtest.Run(m))
}

// lives writes into a file that it is alive, and takes no notice of TERM but to write that it came.
// A shell would not do: dash may lose a signal that comes while it starts a program.
func lives(file string) {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	for {
		select {
		case <-terms:
			_ = os.WriteFile(file+".term", nil, 0o600)
		case <-time.After(10 * time.Millisecond):
		}
		_ = os.WriteFile(file+".new", fmt.Appendln(nil, time.Now().UnixNano()), 0o600)
		_ = os.Rename(file+".new", file)
	}
}

// patience is for anything that a process does.
const patience = time.Minute

// said is what a process wrote, and its exit status.
type said struct {
	out, err string
	status   int
}

// command is the command as a process, with no other environment than this.
func command(t *testing.T, environment []string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0], arguments...)
	own := []string{itself + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE")}
	c.Env = append(own, environment...)
	return c
}

// outcome runs a process to its end.
func outcome(t *testing.T, c *exec.Cmd) said {
	t.Helper()
	var out, errors_ bytes.Buffer
	c.Stdout, c.Stderr = &out, &errors_
	err := c.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return said{out.String(), errors_.String(), c.ProcessState.ExitCode()}
}

// shell is where the command runs in this process, which costs a fraction of a process of its own.
type shell struct {
	environment []string
	in          string // what somebody types
}

// run runs the command to its end.
func (s shell) run(t *testing.T, arguments ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, complaints bytes.Buffer
	c := root(&options{getenv: environment(s.environment...), stderr: &complaints, release: func() {}})
	c.SetArgs(arguments)
	c.SetIn(strings.NewReader(s.in))
	c.SetOut(&out)
	c.SetErr(&complaints)
	exit := status(ctx, &complaints, c.ExecuteContext(ctx))
	return said{out.String(), complaints.String(), exit}
}

// alone runs the command where nothing says which database.
func alone(t *testing.T, arguments ...string) said { t.Helper(); return shell{}.run(t, arguments...) }

// environment looks variables up in NAME=VALUE.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, is := strings.CutPrefix(pair, name+"="); is {
				return value
			}
		}
		return ""
	}
}

// world is a database that a test has for itself, with dblock's tables, and a client of it.
type world struct {
	*testing.T
	kind   string // as package dbtest names it
	engine migrate.Engine
	own    dbtest.Database
	db     *sql.DB
	dsn    string // as the command has it
	client *dblock.Client[*sql.Tx]
}

// eachServer is eachKind without SQLite.
func eachServer(t *testing.T, test func(w *world)) {
	eachKind(t, test, dbtest.KindPostgres, dbtest.KindMySQL, dbtest.KindMariaDB)
}

// eachKind runs a test on every kind of database that is there, or on those that are named.
func eachKind(t *testing.T, test func(w *world), names ...string) {
	t.Parallel()
	for _, kind := range dbtest.Kinds {
		if len(names) > 0 && !slices.Contains(names, kind) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, dbtest.Migrated(t, kind)))
		})
	}
}

// eachProcess is eachKind for what processes do: the library, tested elsewhere, does the same on
// every server. With DBLOCK_TEST_ALL they run on all kinds.
func eachProcess(t *testing.T, test func(w *world)) {
	kinds := []string{dbtest.KindSQLite, dbtest.KindPostgres}
	if os.Getenv("DBLOCK_TEST_ALL") != "" {
		kinds = nil
	}
	eachKind(t, test, kinds...)
}

// onSQLite is for what does not depend on the kind: a file in WAL mode, in a test beside others.
func onSQLite(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, dbtest.SQLite(t))
}

func newWorld(t *testing.T, db dbtest.Database) *world {
	t.Helper()
	w := &world{T: t, kind: db.Kind, engine: db.Engine, own: db, db: db.SQL(t), dsn: db.DSN}
	switch db.Engine {
	case migrate.SQLite:
		file, _, _ := strings.Cut(strings.TrimPrefix(db.DSN, "file:"), "?")
		w.dsn = "sqlite://" + file
	case migrate.MySQL:
		config, err := mysql.ParseDSN(db.DSN)
		require.NoError(t, err)
		w.dsn = (&url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr,
			Path: "/" + config.DBName}).String()
	}
	w.client = w.newClient(dblock.WithApp("orders"), dblock.WithEvents())
	return w
}

func (w *world) newClient(o ...dblock.Option) *dblock.Client[*sql.Tx] {
	w.Helper()
	c, err := dblock.New(database{source: source{engine: w.engine}, DB: w.db}.locks(),
		append(o, dblock.WithHost("there"))...)
	require.NoError(w, err)
	w.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// at is the world as another data source shows it.
func (w *world) at(dsn string) *world {
	other := *w
	other.dsn = dsn
	return &other
}

// run runs the command on the database.
func (w *world) run(arguments ...string) said {
	w.Helper()
	return w.answers("", arguments...)
}

// innodb is held by commands that read InnoDB's tables of transactions. The server makes these anew
// only where nobody has read them for 100 ms.
var innodb sync.Mutex

const innodbIdle = 110 * time.Millisecond

// answers is run where somebody types something.
func (w *world) answers(in string, arguments ...string) said {
	w.Helper()
	if w.engine == migrate.MySQL && slices.Contains(arguments, "why") {
		innodb.Lock()
		defer innodb.Unlock()
		time.Sleep(innodbIdle)
	}
	return shell{[]string{"DBLOCK_DSN=" + w.dsn}, in}.run(w.T, arguments...)
}

// command is the command as a process.
func (w *world) command(arguments ...string) *exec.Cmd {
	w.Helper()
	return command(w.T, []string{"DBLOCK_DSN=" + w.dsn}, arguments...)
}

// process is run as a process of its own, for what takes signals and starts others.
func (w *world) process(arguments ...string) said {
	w.Helper()
	return outcome(w.T, w.command(arguments...))
}

// must is run of what goes well, and returns what it wrote.
func (w *world) must(arguments ...string) string {
	w.Helper()
	s := w.run(arguments...)
	if s.status != 0 || s.err != "" {
		w.Fatalf("dblock %q: status %d, %s", arguments, s.status, s.err)
	}
	return s.out
}

func (w *world) lock(name string, options ...dblock.LockOption) *dblock.Lock {
	w.Helper()
	l, err := w.client.Lock(w.Context(), name, options...)
	require.NoError(w, err)
	return l
}

// waits has somebody wait for a name until the test ends.
func (w *world) waits(name string, n int, options ...dblock.LockOption) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		if l, err := w.client.Lock(ctx, name, options...); err == nil {
			_ = l.Unlock(context.Background())
		}
	}()
	w.until(func() bool {
		info, err := inspect.New(w.client).Lock(w.Context(), name)
		return err == nil && info.Queued == n
	})
}

// exec runs statements on the test's own database.
func (w *world) exec(statements ...string) {
	w.Helper()
	for _, s := range statements {
		require.NoError(w, require.ErrOf(w.db.ExecContext(w.Context(), s)), s)
	}
}

// name is that of the test's own database.
func (w *world) name() string {
	name, _, _ := strings.Cut(w.dsn[strings.LastIndex(w.dsn, "/")+1:], "?")
	return name
}

// onPostgres runs a test on a database of PostgreSQL.
func onPostgres(t *testing.T, test func(w *world)) {
	t.Helper()
	eachKind(t, test, "postgres")
}

func (w *world) isMariaDB() bool { return strings.HasSuffix(w.Name(), "mariadb") }

func (w *world) until(yes func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatal("it does not become so")
		}
	}
}

// contains checks that a text has all of these in it.
func contains(t testing.TB, text string, all ...string) {
	t.Helper()
	for _, part := range all {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
