// Package dbtest gives a test a real database. Only tests and its own command serve import it.
//
// A test binary looks for a server once, when a test first asks for its kind (postgres, mysql,
// mariadb, tidb, vitess), in this order:
//
//  1. a DSN in the environment: DBLOCK_TEST_POSTGRES_DSN, DBLOCK_TEST_MYSQL_DSN,
//     DBLOCK_TEST_MARIADB_DSN, DBLOCK_TEST_TIDB_DSN, DBLOCK_TEST_VITESS_DSN. Its user must be
//     allowed to create databases. A DSN that does not answer is a failure.
//  2. Local binaries, started in a temporary folder on a free port of 127.0.0.1: PostgreSQL in
//     DBLOCK_TEST_PG_BIN, /usr/lib/postgresql or PATH; MariaDB in DBLOCK_TEST_MARIADB_BIN, PATH or
//     /usr/sbin; MySQL's mysqld likewise, or as the command DBLOCK_TEST_MYSQLD; TiDB's tidb-server
//     in PATH, or as DBLOCK_TEST_TIDB_SERVER; Vitess's vtcombo in PATH, or as DBLOCK_TEST_VTCOMBO,
//     over such a mysqld. A server never runs as root: root starts it as postgres, mysql or nobody.
//  3. Docker: postgres:17, mysql:8.4, mariadb:11.4. A helper program of the module
//     internal/testing/system starts them, because dockertest is not to be a requirement of this
//     module.
//
// Servers started here are stopped, and their folders removed, when Run ends. Every test has a
// database for itself. On PostgreSQL, MySQL and MariaDB it is emptied afterwards and given to a
// later test, unless the test has left more than rows in it (see clean). SQLite is a file in the
// test's folder and always there: a test that asks for it imports a driver (see SQLiteDriver),
// which this package does not.
//
// A kind without a server is left out, and Run says so. DBLOCK_TEST_REQUIRE=postgres,mariadb makes
// that a failure of each test that asks for it; so does DBLOCK_TEST_ONLY=postgres,mysql, which
// leaves all other kinds out.
package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// The kinds of server. MySQL, MariaDB, TiDB and Vitess share an engine and are four kinds.
const (
	KindPostgres = "postgres"
	KindMySQL    = "mysql"
	KindMariaDB  = "mariadb"
	KindSQLite   = "sqlite"
	KindTiDB     = "tidb"
	KindVitess   = "vitess"
)

// Kinds are those that Each runs, in their order. TiDB and Vitess are for the tests that ask for
// them.
var Kinds = []string{KindSQLite, KindPostgres, KindMySQL, KindMariaDB}

// dropTimeout bounds the making and dropping of a database. Dropping takes long where a test left a
// transaction open.
const dropTimeout = time.Minute

// SQLiteDriver is the database/sql driver that opens SQLite's files. It understands _pragma=… in a
// DSN. Set it before the first database is made: two copies of SQLite in one process undo each
// other's locks. Default: "sqlite", the name of modernc.org/sqlite.
var SQLiteDriver = "sqlite"

// PostgresDriver is the database/sql driver for PostgreSQL. Set it before the tests run.
var PostgresDriver = "pgx"

// Database is a database of one test.
type Database struct {
	Kind   string // one of Kinds, KindTiDB or KindVitess
	Engine migrate.Engine
	DSN    string
	name   string // on its server; for SQLite, the file
	like   string // how PostgreSQL copies it to make others
	warm   *warm  // backends of connections that were closed; nil: none is kept
}

// Each runs f in a subtest for every kind there is, with a fresh database that has dblock's tables.
func Each(t *testing.T, f func(t *testing.T, db Database)) {
	t.Helper()
	each(t, (*Server).Database, f)
}

// EachEmpty is Each without the tables.
func EachEmpty(t *testing.T, f func(t *testing.T, db Database)) {
	t.Helper()
	each(t, (*Server).Empty, f)
}

func each(t *testing.T, fresh func(*Server, testing.TB) Database, f func(t *testing.T, db Database)) {
	t.Helper()
	for _, kind := range Kinds {
		if server, err := Find(kind); err == nil || required(kind) {
			t.Run(kind, func(t *testing.T) {
				require.NoError(t, err)
				f(t, fresh(server, t))
			})
		}
	}
}

// Postgres returns a fresh database with dblock's tables on PostgreSQL. Without a server the test
// is skipped, and Run says so. The same holds for the other kinds.
func Postgres(t testing.TB) Database { t.Helper(); return Migrated(t, KindPostgres) }

// MySQL is Postgres for MySQL.
func MySQL(t testing.TB) Database { t.Helper(); return Migrated(t, KindMySQL) }

// MariaDB is Postgres for MariaDB.
func MariaDB(t testing.TB) Database { t.Helper(); return Migrated(t, KindMariaDB) }

// SQLite returns a fresh SQLite file with dblock's tables.
func SQLite(t testing.TB) Database { t.Helper(); return Migrated(t, KindSQLite) }

// Migrated returns a fresh database of a kind, with dblock's tables.
func Migrated(t testing.TB, kind string) Database { t.Helper(); return server(t, kind).Database(t) }

// Warm is Migrated for a test that does not count the connections to its database: see Server.Warm.
func Warm(t testing.TB, kind string) Database { t.Helper(); return server(t, kind).Warm(t) }

// Prepared is Warm for a test that changes more than rows: see Server.Prepared.
func Prepared(t testing.TB, kind, preparation string, prepare func(db Database)) Database {
	t.Helper()
	return server(t, kind).Prepared(t, preparation, prepare)
}

// New is Migrated for a database that no test had before: see Server.New.
func New(t testing.TB, kind string) Database { t.Helper(); return server(t, kind).New(t) }

// Empty returns a fresh database of a kind, without tables.
func Empty(t testing.TB, kind string) Database { t.Helper(); return server(t, kind).Empty(t) }

// Need skips a test if there is no server of the kind, or fails where the kind is required.
func Need(t testing.TB, kind string) { t.Helper(); server(t, kind) }

func server(t testing.TB, kind string) *Server {
	t.Helper()
	server, err := Find(kind)
	switch {
	case err == nil:
	case required(kind):
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return server
}

// Empty returns a fresh database without tables. It is dropped when the test has ended, even with
// connections to it.
func (s *Server) Empty(t testing.TB) Database {
	t.Helper()
	if s.Kind == KindSQLite {
		label(t)
		return sqliteIn(t.TempDir())
	}
	return s.temporary(t, "")
}

// sqliteIn is a file in a folder. No fsync: processes are killed, never the machine.
func sqliteIn(folder string) Database {
	file := filepath.Join(folder, "dblock.db")
	return Database{
		Kind: KindSQLite, Engine: migrate.SQLite, name: file,
		DSN: "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)",
	}
}

// temporary makes a database for as long as the test runs.
func (s *Server) temporary(t testing.TB, like string) Database {
	t.Helper()
	label(t)
	db := s.create(t, newName(), like)
	s.dropAfter(t, db)
	return db
}

// dropAfter drops a database when the test has ended.
func (s *Server) dropAfter(t testing.TB, db Database) {
	t.Cleanup(func() { s.mustDrop(t, db) })
}

// mustDrop drops a database, which fails the test on a server that no test can have ended.
func (s *Server) mustDrop(t testing.TB, db Database) {
	if err := s.drop(db.name); err != nil && s.control == nil {
		t.Errorf("dbtest: drop the test's database on %s; did it leave a transaction open? %v", s.Kind, err)
	}
}

// label has the profile of a test binary name the test (scripts/test -times).
func label(t testing.TB) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", t.Name())))
}

func (s *Server) create(t testing.TB, name, like string) Database {
	t.Helper()
	if err := s.admin("CREATE DATABASE " + name + like); err != nil {
		t.Fatalf("dbtest: create a database on %s (%s): %v", s.Kind, s.From, err)
	}
	dsn, err := withDatabase(s.Kind, s.DSN, name)
	require.NoError(t, err)
	return Database{Kind: s.Kind, Engine: engineOf(s.Kind), DSN: dsn, name: name}
}

func (s *Server) drop(name string) error {
	statement := "DROP DATABASE " + name
	if s.Kind == KindPostgres {
		statement += " WITH (FORCE)"
	}
	for tries := 1; ; tries++ {
		err := s.admin(statement)
		var server *mysql.MySQLError
		if !errors.As(err, &server) || server.Number != 1213 || tries > 10 {
			return err
		}
		// A transaction that was on its way to another table: the server ends it, or the drop.
	}
}

// admin runs a statement on the server, over one connection that is kept: on some machines
// PostgreSQL needs as long for a new one as for the database itself.
func (s *Server) admin(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	db, err := s.pool()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return err
}

// pool returns the pool for statements on the server as a whole.
func (s *Server) pool() (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		return s.db, nil
	}
	db, err := open(s.Kind, s.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(1)
	s.db = db
	return db, nil
}

// leave closes the pool.
func (s *Server) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return db.Close()
}

// Migrate brings dblock's tables into the database.
func (d Database) Migrate(t testing.TB) {
	t.Helper()
	db, err := d.open()
	require.NoError(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, migrate.Up(ctx, db, d.Engine))
}

// Exec runs statements over a pool of its own, which is closed afterwards.
func (d Database) Exec(t testing.TB, statements ...string) {
	t.Helper()
	db, err := d.open()
	require.NoError(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, statement := range statements {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err, statement)
	}
}

// SQL opens a pool of database/sql, which is closed when the test has ended.
func (d Database) SQL(t testing.TB) *sql.DB {
	t.Helper()
	db, err := d.open()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Text writes a statement with ? for its arguments as the database's driver wants it.
func (d Database) Text(statement string) string {
	if d.Kind != KindPostgres {
		return statement
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}

// Pool opens a pgx pool, which is closed when the test has ended. A connection that the test has
// not released by then would make Close wait for ever, so the leak check reports it instead.
func (d Database) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(d.DSN)
	require.NoError(t, err)
	d.Keep(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		for range 100 { // a connection with an ended context needs a moment to close
			if pool.Stat().AcquiredConns() == 0 {
				pool.Close()
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("dbtest: %d connections of the pool were not given back", pool.Stat().AcquiredConns())
	})
	return pool
}

// Processes names the table of a MySQL or MariaDB server's connections. MySQL's own
// information_schema.processlist cannot be read (error 3854) while a statement with an emoji in it
// runs anywhere on the server.
func (d Database) Processes() string {
	if d.Kind == KindMySQL {
		return "performance_schema.processlist"
	}
	return "information_schema.processlist"
}

// Through returns the database as seen through a proxy to its server.
func (d Database) Through(t testing.TB, p *Proxy) Database {
	t.Helper()
	var err error
	if d.Kind == KindPostgres {
		var u *url.URL
		if u, err = postgresURL(d.DSN); err == nil {
			u.Host = p.Addr()
			d.DSN = u.String()
		}
	} else {
		var c *mysql.Config
		if c, err = mysql.ParseDSN(d.DSN); err == nil {
			c.Net, c.Addr = "tcp", p.Addr()
			d.DSN = c.FormatDSN()
		}
	}
	require.NoError(t, err)
	return d
}

// Addr is the host and port of the database's server.
func (d Database) Addr(t testing.TB) string {
	t.Helper()
	addr, err := address(d.Kind, d.DSN)
	require.NoError(t, err)
	return addr
}

func address(kind, dsn string) (string, error) {
	if kind == KindPostgres {
		c, err := pgx.ParseConfig(dsn)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s:%d", c.Host, c.Port), nil
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	return c.Addr, nil
}

func engineOf(kind string) migrate.Engine {
	switch kind {
	case KindMariaDB, KindTiDB, KindVitess:
		return migrate.MySQL
	}
	return migrate.Engine(kind)
}

// open opens a pool, on backends that were kept where that is possible.
func (d Database) open() (*sql.DB, error) {
	if d.warm == nil || PostgresDriver != "pgx" {
		return open(d.Kind, d.DSN)
	}
	config, err := pgx.ParseConfig(d.DSN)
	if err != nil {
		return nil, err
	}
	d.Keep(config)
	return stdlib.OpenDB(*config), nil
}

func open(kind, dsn string) (*sql.DB, error) {
	switch kind {
	case KindPostgres:
		return sql.Open(PostgresDriver, dsn)
	case KindSQLite:
		return sql.Open(SQLiteDriver, dsn)
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c.Logger = &mysql.NopLogger{} // it would log every connection that a test cuts
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func withDatabase(kind, dsn, name string) (string, error) {
	if kind == KindPostgres {
		u, err := postgresURL(dsn)
		if err != nil {
			return "", err
		}
		u.Path = "/" + name
		return u.String(), nil
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	c.DBName = name
	return c.FormatDSN(), nil
}

func postgresURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("dbtest: a PostgreSQL DSN must be a URL, postgres://user@host:port/database")
	}
	return u, nil
}
