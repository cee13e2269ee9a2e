package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	poolSize   = 16
	dblockTTL  = 15 * time.Second
	bareRows   = 256 // of table peers_rows
	bareUpdate = "UPDATE peers_rows SET n = n + 1 WHERE id = $1"
)

var tablePeers = []peer{
	{name: "commits", title: "two bare commits on PostgreSQL, no lock", durable: synced, server: "postgres",
		open: openCommits, reference: true},
	{name: "dblock-postgres", title: "dblock, PostgreSQL", durable: synced, server: "postgres", ttl: dblockTTL,
		open: openPostgres()},
	{name: "dblock-mysql", title: "dblock, MySQL", durable: synced, server: "mysql", ttl: dblockTTL,
		open: openSQL("mysql", newMySQL)},
	{name: "dblock-mariadb", title: "dblock, MariaDB", durable: synced, server: "mariadb", ttl: dblockTTL,
		open: openSQL("mysql", newMySQL)},
	{name: "dblock-sqlite", title: "dblock, SQLite", durable: synced, server: "sqlite", ttl: dblockTTL,
		open: openSQL("sqlite", sqlite.New)},
	{name: "elsewhere-postgres", title: "dblock, PostgreSQL, the holder on another host", durable: synced,
		server: "postgres", ttl: dblockTTL, crashes: true, open: openPostgres(elsewhere)},
	{name: "elsewhere-mysql", title: "dblock, MySQL, the holder on another host", durable: synced, server: "mysql",
		ttl: dblockTTL, crashes: true, open: openSQL("mysql", newMySQL, elsewhere)},
	{name: "elsewhere-mariadb", title: "dblock, MariaDB, the holder on another host", durable: synced,
		server: "mariadb", ttl: dblockTTL, crashes: true, open: openSQL("mysql", newMySQL, elsewhere)},
}

// elsewhere has clients learn nothing of each other's processes, as on two hosts.
var elsewhere = dblock.WithoutCrashDetection()

func newMySQL(db *sql.DB) dblock.Engine[*sql.Tx] { return mysql.New(db) }

// handles are locks of a client of dblock, of any kind.
type handles struct {
	dblock.Locker
	end func()
}

func (h handles) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := h.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return l.Unlock, nil
}

func (h handles) close() { h.end() }

func tables[TX any](engine dblock.Engine[TX], ttl time.Duration, options []dblock.Option, end func()) (locker, error) {
	c, err := dblock.New(engine, append([]dblock.Option{dblock.WithTTL(ttl),
		dblock.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		end()
		return nil, err
	}
	return handles{c.Locker(), func() { _ = c.Close(context.Background()); end() }}, nil
}

type opening = func(ctx context.Context, at string, ttl time.Duration) (locker, error)

func openPostgres(options ...dblock.Option) opening {
	return func(ctx context.Context, at string, ttl time.Duration) (locker, error) {
		pool, err := openPool(ctx, at, poolSize)
		if err != nil {
			return nil, err
		}
		return tables(postgres.New(pool), ttl, options, pool.Close)
	}
}

func openSQL(driver string, engine func(*sql.DB) dblock.Engine[*sql.Tx], options ...dblock.Option) opening {
	return func(_ context.Context, at string, ttl time.Duration) (locker, error) {
		db, err := openDB(driver, at, poolSize)
		if err != nil {
			return nil, err
		}
		return tables(engine(db), ttl, options, func() { _ = db.Close() })
	}
}

func openPool(ctx context.Context, dsn string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	return pgxpool.NewWithConfig(ctx, config)
}

func openDB(driver, dsn string, size int) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// commits is the reference, the cost of durable writes: lock and unlock are one commit each.
type commits struct {
	pool *pgxpool.Pool
	rows atomic.Int64
}

func openCommits(ctx context.Context, at string, _ time.Duration) (locker, error) {
	pool, err := openPool(ctx, at, poolSize)
	return &commits{pool: pool}, err
}

func (c *commits) lock(ctx context.Context, _ string) (func(context.Context) error, error) {
	row := c.rows.Add(1) % bareRows
	commit := func(ctx context.Context) error {
		_, err := c.pool.Exec(ctx, bareUpdate, row)
		return err
	}
	return commit, commit(ctx)
}

func (c *commits) close() { c.pool.Close() }

// bareTable makes the table of the bare commits.
func bareTable(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE peers_rows (id integer PRIMARY KEY, n bigint NOT NULL) "+
		"WITH (fillfactor = 50)"); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO peers_rows SELECT i, 0 FROM generate_series(0, %d) i",
		bareRows-1))
	return err
}
