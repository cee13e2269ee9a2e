package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// connectTimeout is how long a server may take to answer for the first time.
const connectTimeout = 10 * time.Second

// database is an open pool.
type database struct {
	source
	db     *sql.DB
	pool   *pgxpool.Pool // PostgreSQL only; db goes through it
	folder string        // of the SQLite file, to be removed; "" where there is none
}

// openDatabase opens what -dsn names, or makes an SQLite file.
func openDatabase(ctx context.Context, dsn string) (database, error) {
	if dsn != "" {
		s, err := parseDSN(dsn)
		if err != nil {
			return database{}, err
		}
		return s.open(ctx)
	}
	folder, err := os.MkdirTemp("", "dblock-fee-")
	if err != nil {
		return database{}, err
	}
	file := filepath.Join(folder, "fee.db")
	// SQLite has one writer at a time: the others wait for it, for up to 10 s, and with WAL they can read meanwhile.
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(file), RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"}
	d, err := source{Engine: migrate.SQLite, DSN: u.String(), Place: "SQLite, " + file}.open(ctx)
	if err != nil {
		return database{}, errors.Join(err, os.RemoveAll(folder))
	}
	d.folder = folder
	return d, nil
}

func (s source) open(ctx context.Context) (d database, err error) {
	d.source = s
	switch s.Engine {
	case migrate.Postgres:
		if d.pool, err = pgxpool.New(ctx, s.DSN); err == nil {
			d.db = stdlib.OpenDBFromPool(d.pool)
		}
	case migrate.MySQL:
		d.db, err = sql.Open("mysql", s.DSN)
	default:
		d.db, err = sql.Open("sqlite", s.DSN)
	}
	if err != nil {
		return database{}, fmt.Errorf("open %s: %w", s.Place, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := d.db.PingContext(ctx); err != nil {
		d.close()
		return database{}, fmt.Errorf("connect to %s: %w", s.Place, err)
	}
	return d, nil
}

func (d database) close() {
	_ = d.db.Close()
	if d.pool != nil {
		d.pool.Close()
	}
	if d.folder != "" {
		_ = os.RemoveAll(d.folder)
	}
}

func (d database) accounts() accounts {
	return accounts{db: d.db, numbered: d.Engine == migrate.Postgres}
}

// migrate makes dblock's tables, where they are not there yet.
func (d database) migrate(ctx context.Context) error { return migrate.Up(ctx, d.db, d.Engine) }

// onlyRun keeps a second run of this program out of the database, since both would use the same table. It is a lock,
// of course: after a run that was killed, it is free when the TTL is over.
func (d database) onlyRun(ctx context.Context, o options) (release func(), err error) {
	engine := map[string]func(*sql.DB) driver.Engine[*sql.Tx]{
		migrate.Postgres: postgres.NewSQL, migrate.MySQL: mysql.New, migrate.SQLite: sqlite.New,
	}[d.Engine]
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = slog.Default()
	}
	client, err := dblock.New(engine(d.db), dblock.WithTTL(o.ttl), dblock.WithLogger(log))
	if err != nil {
		return nil, err
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		_ = client.Close(ctx) // what it cannot give back now is free after the TTL
	}
	if _, err := client.TryLock(ctx, tableName+"/run"); err != nil {
		release()
		if errors.Is(err, dblock.ErrNotAcquired) {
			return nil, fmt.Errorf("another run uses this database, or was killed a moment ago: %w", err)
		}
		return nil, err
	}
	return release, nil
}

// whileNobodyWrites calls f at a moment at which no process is in the middle of writing to an SQLite file. SQLite has one
// write lock for the whole file: a process that is stopped while it has that stops everybody, whatever else they lock.
func (d database) whileNobodyWrites(ctx context.Context, f func() error) error {
	if d.Engine != migrate.SQLite {
		return f()
	}
	conn, err := d.db.Conn(ctx)
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
