// Package database opens the database of an example's -dsn, or an SQLite file of its own.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// Usage is the text of the flag -dsn.
const Usage = "`database`: postgres://user:pass@host:port/db or mysql://user:pass@host:port/db (default: an SQLite " +
	"file of its own)"

// connectTimeout bounds the wait for a server's first answer.
const connectTimeout = 10 * time.Second

// mostConns is enough for some clients in one process, as examples have them. pgxpool's default is
// four on a small machine, and over database/sql each client keeps two.
const mostConns = 32

// Database is an open pool.
type Database struct {
	Source
	SQL  *sql.DB
	Pool *pgxpool.Pool // PostgreSQL only; SQL goes through it

	folder string // of the SQLite file, to be removed; "": none
}

// Open opens the database of dsn, or makes an SQLite file that Close removes. name is the
// example's.
func Open(ctx context.Context, dsn, name string) (Database, error) {
	if dsn != "" {
		s, err := Parse(dsn)
		if err != nil {
			return Database{}, err
		}
		return s.Open(ctx)
	}
	folder, err := os.MkdirTemp("", "dblock-"+name+"-")
	if err != nil {
		return Database{}, err
	}
	file := filepath.Join(folder, name+".db")
	// SQLite has one writer at a time: the others wait for it, for up to 10 s, and in WAL mode they
	// can read meanwhile.
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file),
		RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"}
	d, err := Source{Engine: migrate.SQLite, DSN: u.String(), Place: "SQLite, " + file}.Open(ctx)
	if err != nil {
		return Database{}, errors.Join(err, os.RemoveAll(folder))
	}
	d.folder = folder
	return d, nil
}

// Open connects.
func (s Source) Open(ctx context.Context) (d Database, err error) {
	d.Source = s
	switch s.Engine {
	case migrate.Postgres:
		var config *pgxpool.Config
		if config, err = pgxpool.ParseConfig(s.DSN); err != nil {
			break
		}
		config.MaxConns = max(config.MaxConns, mostConns)
		if d.Pool, err = pgxpool.NewWithConfig(ctx, config); err == nil {
			d.SQL = stdlib.OpenDBFromPool(d.Pool)
		}
	case migrate.MySQL:
		d.SQL, err = sql.Open("mysql", s.DSN)
	default:
		d.SQL, err = sql.Open("sqlite", s.DSN)
	}
	if err != nil {
		return Database{}, fmt.Errorf("open %s: %w", s.Place, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := d.SQL.PingContext(ctx); err != nil {
		d.Close()
		return Database{}, fmt.Errorf("connect to %s: %w", s.Place, err)
	}
	return d, nil
}

// Close closes the pool, and removes a file that Open made.
func (d Database) Close() {
	_ = d.SQL.Close()
	if d.Pool != nil {
		d.Pool.Close()
	}
	if d.folder != "" {
		_ = os.RemoveAll(d.folder)
	}
}

// Bind writes the parameters of a query, given as ?, in the engine's form.
func (s Source) Bind(query string) string {
	for n := 1; s.Engine == migrate.Postgres && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// WhileNobodyWrites calls f at a moment when no process is writing to an SQLite file. SQLite has
// one write lock for the whole file: a process that is stopped while it has that lock blocks all
// others, whatever they lock.
func (d Database) WhileNobodyWrites(ctx context.Context, f func() error) error {
	if d.Engine != migrate.SQLite {
		return f()
	}
	conn, err := d.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = f()
	_, rollbackErr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return errors.Join(err, rollbackErr)
}

// EngineOverSQL returns the engine of locks in tables, over database/sql.
func (d Database) EngineOverSQL() dblock.Engine[*sql.Tx] {
	switch d.Engine {
	case migrate.Postgres:
		return postgres.NewSQL(d.SQL)
	case migrate.MySQL:
		return mysql.New(d.SQL)
	}
	return sqlite.New(d.SQL)
}
