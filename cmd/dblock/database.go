package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/migrate"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// app is the name of this command's client in the tables.
const app = "dblock-cli"

// connections is the size of the pool: enough for a client that takes locks, on each engine.
const connections = 6

const defaultTimeout = 30 * time.Second

// firstSign bounds the wait of a command that looks for the server's first answer, if no --timeout
// is given: in a failover an operator wants to know at once.
const firstSign = 3 * time.Second

// options are the options of all commands.
type options struct {
	dsn     string
	schema  string // of the tables; "": the connection's own
	local   bool
	json    bool
	timeout time.Duration
	create  bool // makes a missing file of SQLite
	looks   bool // the command looks, and does not wait for a server that does not answer

	given   func(flag string) bool
	getenv  func(string) string
	stderr  io.Writer
	release func() // from then on no signal ends the command's context
}

// context limits a command that neither waits nor watches.
func (o *options) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no answer within %v (--timeout)", o.timeout))
}

// firstSign returns the time for which a command that looks waits for the server's first answer; 0:
// no limit.
func (o *options) firstSign() time.Duration {
	if o.given("timeout") {
		return o.timeout
	}
	return firstSign
}

// withinFirstSign limits a context to the wait for the server's first answer.
func (o *options) withinFirstSign(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := o.firstSign()
	if wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, wait, fmt.Errorf("no answer within %v", wait))
}

// database is a database with its pool.
type database struct {
	source
	*sql.DB
	stderr io.Writer // for reports of the library
}

// open makes the pool. It does not connect yet.
func (o *options) open(ctx context.Context) (database, error) {
	s, err := sourceOf(o, o.getenv)
	if err != nil {
		return database{}, err
	}
	if o.looks {
		s.spread(o.firstSign())
	}
	d, err := s.pool(o.create, o.stderr)
	if err != nil {
		return database{}, err
	}
	if s.local {
		if err := migrate.Up(ctx, d.DB, s.engine); err != nil {
			_ = d.Close()
			return database{}, fmt.Errorf("%v: %w", s, err)
		}
	}
	return d, nil
}

// spread divides the time to connect among the servers of PostgreSQL that a source names, so that a
// silent server leaves time for the others. connect_timeout takes precedence. pgx also lists the
// same server with another encryption among the fallbacks.
func (s source) spread(wait time.Duration) {
	if s.postgres == nil || s.postgres.ConnectTimeout != 0 {
		return
	}
	servers := map[string]bool{net.JoinHostPort(s.postgres.Host, fmt.Sprint(s.postgres.Port)): true}
	for _, f := range s.postgres.Fallbacks {
		servers[net.JoinHostPort(f.Host, fmt.Sprint(f.Port))] = true
	}
	if len(servers) > 1 {
		s.postgres.ConnectTimeout = wait / time.Duration(len(servers))
	}
}

// pool opens a source's pool. create makes a missing file of SQLite.
func (s source) pool(create bool, stderr io.Writer) (database, error) {
	d := database{source: s, stderr: stderr}
	switch {
	case s.postgres != nil:
		if s.postgres.RuntimeParams["application_name"] == "" {
			s.postgres.RuntimeParams["application_name"] = app
		}
		// a database of another encoding would set its own
		s.postgres.RuntimeParams["client_encoding"] = "UTF8"
		d.DB = stdlib.OpenDB(*s.postgres)
	case s.mysql != nil:
		s.mysql.Logger = &mysql.NopLogger{} // its messages that matter are returned as errors too
		connector, err := mysql.NewConnector(s.mysql)
		if err != nil {
			return database{}, err
		}
		d.DB = sql.OpenDB(connector)
	default:
		var err error
		if d.DB, err = s.openFile(create); err != nil {
			return database{}, err
		}
	}
	d.SetMaxOpenConns(connections)
	d.SetMaxIdleConns(connections)
	return d, nil
}

// openFile opens SQLite's file. The file must exist unless it is this user's own or create is set:
// otherwise a mistyped path would make a new file without locks.
func (s source) openFile(create bool) (*sql.DB, error) {
	if s.local {
		if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(s.file); err != nil && !create {
		return nil, err
	}
	parameters := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(5000)"}}
	if s.local || create {
		parameters.Set("mode", "rwc")
	}
	if s.local {
		parameters.Add("_pragma", "journal_mode(WAL)")
	}
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.file}).EscapedPath(), RawQuery: parameters.Encode()}
	return sql.Open("sqlite", file.String())
}

func (d database) locks() dblock.Engine[*sql.Tx] {
	switch d.engine {
	case migrate.Postgres:
		return postgres.NewSQL(d.DB)
	case migrate.MySQL:
		return dblockmysql.New(d.DB)
	}
	return sqlite.New(d.DB)
}

const mariaDB migrate.Engine = "mariadb" // the library treats MariaDB as MySQL

// server returns the engine, or mariaDB.
func (d database) server(ctx context.Context) (migrate.Engine, error) {
	if d.engine != migrate.MySQL {
		return d.engine, nil
	}
	var version string
	err := d.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	if isMariaDB(version) {
		return mariaDB, err
	}
	return d.engine, err
}

func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

// errorNumber returns the number of an error of MySQL or MariaDB; 0: the error is not the server's.
func errorNumber(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// because returns err, or the cause of its context, which drivers leave out. Its text has one line.
// For a connect error of pgx it has the answer of each address, without the rest of the data
// source.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if failed := new(pgconn.ConnectError); errors.As(err, &failed) {
		err = failed.Unwrap()
	}
	return errors.New(driver.OneLine(err.Error()))
}

type client = dblock.Client[*sql.Tx]

// client makes a client that looks and intervenes.
func (d database) client(o ...dblock.Option) (*client, error) {
	log := slog.New(slog.NewTextHandler(d.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return dblock.New(d.locks(), append([]dblock.Option{dblock.WithoutReaper(), dblock.WithApp(app),
		dblock.WithLogger(log)}, o...)...)
}

// using calls f with the database.
func (o *options) using(ctx context.Context, f func(d database) error) error {
	d, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(d)
}

// looking is using for a command that looks. If the server answers with an error, f reports it.
func (o *options) looking(ctx context.Context, f func(d database) error) error {
	o.looks = true
	return o.using(ctx, func(d database) error {
		limited, cancel := o.withinFirstSign(ctx)
		defer cancel()
		if err := d.PingContext(limited); errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v cannot be reached: %w; a failover may be in progress: try again, or wait for longer "+
				"with --timeout", d, because(limited, err))
		}
		return f(d)
	})
}

// with is using for a command that neither waits nor watches.
func (o *options) with(c *cobra.Command, f func(ctx context.Context, d database) error) error {
	ctx, cancel := o.context(c.Context())
	defer cancel()
	return o.using(ctx, func(d database) error { return f(ctx, d) })
}

// reading is looking for a command that reads dblock's tables. If this build cannot work with them,
// what it read there could mean something else.
func (o *options) reading(ctx context.Context, f func(d database) error) error {
	return o.looking(ctx, func(d database) error {
		limited, cancel := o.withinFirstSign(ctx)
		defer cancel()
		tables, err := inside.Of(d.locks()).Backend.Schema(limited)
		if err == nil {
			err = tables.Check()
		}
		if err != nil && !errors.Is(err, dblock.ErrSchema) {
			err = fmt.Errorf("%v cannot be read: %w", d, because(limited, err))
		}
		if err != nil {
			return err
		}
		return f(d)
	})
}

// inspect calls f with a client of the database, for a command that looks.
func (o *options) inspect(ctx context.Context, f func(ctx context.Context, c *client) error) error {
	return o.reading(ctx, func(d database) error {
		return d.locking(ctx, func(c *client) error { return f(ctx, c) })
	})
}

// once is inspect for a command that looks once.
func (o *options) once(c *cobra.Command, f func(ctx context.Context, c *client) error) error {
	ctx, cancel := o.context(c.Context())
	defer cancel()
	return o.inspect(ctx, f)
}

// locking calls f with a client of the database.
func (d database) locking(ctx context.Context, f func(c *client) error) error {
	c, err := d.client()
	if err != nil {
		return err
	}
	defer func() { // a session that does not end in this time ends with its TTL
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(closing)
	}()
	return f(c)
}
