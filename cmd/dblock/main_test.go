package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/migrate"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
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
	os.Exit(m.Run())
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

// command is the command with arguments, and with no other environment than this.
func command(t *testing.T, environment []string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0], arguments...)
	own := []string{itself + "=1", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
	c.Env = append(own, environment...)
	return c
}

// outcome runs a command to its end.
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

// kind is a kind of database.
type kind struct {
	driver string // of database/sql
	engine string // as package migrate names it
	new    func(db *sql.DB) driver.Engine[*sql.Tx]
	server string // the environment variable that names one; "": it needs none
}

var kinds = map[string]kind{
	"sqlite":   {"sqlite", migrate.SQLite, sqlite.New, ""},
	"postgres": {"pgx", migrate.Postgres, func(db *sql.DB) driver.Engine[*sql.Tx] { return postgres.NewSQL(db) }, "DBLOCK_TEST_POSTGRES_DSN"},
	"mysql":    {"mysql", migrate.MySQL, func(db *sql.DB) driver.Engine[*sql.Tx] { return dblockmysql.New(db) }, "DBLOCK_TEST_MYSQL_DSN"},
	"mariadb":  {"mysql", migrate.MySQL, func(db *sql.DB) driver.Engine[*sql.Tx] { return dblockmysql.New(db) }, "DBLOCK_TEST_MARIADB_DSN"},
}

// world is a database that a test has for itself, with dblock's tables, and a client of it.
type world struct {
	*testing.T
	kind
	db     *sql.DB
	dsn    string // as the command has it
	client *dblock.Client[*sql.Tx]
}

// eachServer is eachKind without SQLite.
func eachServer(t *testing.T, test func(w *world)) { eachKind(t, test, "postgres", "mysql", "mariadb") }

// asked reports whether tests on a kind of database were asked for.
func asked(name string) bool {
	only := os.Getenv("DBLOCK_TEST_ONLY")
	return only == "" || slices.Contains(strings.Split(only, ","), name)
}

// eachKind runs a test on every kind of database that is there, or on those that are named.
func eachKind(t *testing.T, test func(w *world), names ...string) {
	for name, k := range kinds {
		if k.server != "" && os.Getenv(k.server) == "" || !asked(name) || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := k.world(t)
			if err := migrate.Up(t.Context(), w.db, k.engine); err != nil {
				t.Fatal(err)
			}
			test(w)
		})
	}
}

func (k kind) world(t *testing.T) *world {
	t.Helper()
	own, dsn := k.create(t)
	db, err := sql.Open(k.driver, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := dblock.New(k.new(db), dblock.WithHost("there"), dblock.WithApp("orders"), dblock.WithEvents())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return &world{T: t, kind: k, db: db, dsn: dsn, client: c}
}

// create makes a database, and returns its data source as the driver has it, and as the command
// has.
func (k kind) create(t *testing.T) (own, dsn string) {
	if k.server == "" {
		file := filepath.Join(t.TempDir(), "app.db")
		return "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)", "sqlite://" + file
	}
	server, err := sql.Open(k.driver, os.Getenv(k.server))
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("dblock_cli_%d", rand.Uint64())
	if _, err := server.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := server.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
		_ = server.Close()
	})
	if k.driver == "mysql" {
		config, err := mysql.ParseDSN(os.Getenv(k.server))
		if err != nil {
			t.Fatal(err)
		}
		config.DBName = name
		u := url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: "/" + name}
		return config.FormatDSN(), u.String()
	}
	u, err := url.Parse(os.Getenv(k.server))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String(), u.String()
}

// run runs the command on the database.
func (w *world) run(arguments ...string) said {
	w.Helper()
	return outcome(w.T, w.command(arguments...))
}

func (w *world) command(arguments ...string) *exec.Cmd {
	w.Helper()
	return command(w.T, []string{"DBLOCK_DSN=" + w.dsn}, arguments...)
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

func (w *world) lock(name string, options ...dblock.LockOption) *dblock.Lock[*sql.Tx] {
	w.Helper()
	l, err := w.client.Lock(w.Context(), name, options...)
	if err != nil {
		w.Fatal(err)
	}
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
		info, err := w.client.Inspect(w.Context(), name)
		return err == nil && info.Queued == n
	})
}

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
