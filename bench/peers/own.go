package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// ownPeers are the locks of the servers themselves, through dblock and bare.
var ownPeers = []peer{
	{name: "advisory", title: "dblock, `postgres.Advisory`", durable: memory, server: "postgres", session: true,
		open: openAdvisory},
	{name: "named", title: "dblock, `mysql.Named`, MariaDB", durable: memory, server: "mariadb", session: true,
		open: openNamed},
	{name: "pg_advisory_lock", title: "`pg_advisory_lock`, a connection per lock", durable: memory,
		server: "postgres", session: true, open: openBareAdvisory},
	{name: "get_lock", title: "`GET_LOCK` on MariaDB, a connection per lock", durable: memory, server: "mariadb",
		session: true, open: openBareNamed},
}

// manyConns is enough for a connection per goroutine.
const manyConns = 270

func openAdvisory(ctx context.Context, at string, _ time.Duration) (locker, error) {
	pool, err := openPool(ctx, at, poolSize)
	if err != nil {
		return nil, err
	}
	c, err := postgres.Advisory(pool, postgres.AdvisoryLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return handles{c, func() { _ = c.Close(context.Background()); pool.Close() }}, nil
}

func openNamed(_ context.Context, at string, _ time.Duration) (locker, error) {
	db, err := openDB("mysql", at, 2*poolSize)
	if err != nil {
		return nil, err
	}
	c, err := mysql.Named(db, mysql.NamedLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return handles{c, func() { _ = c.Close(context.Background()); _ = db.Close() }}, nil
}

// bareAdvisory takes each lock on a connection that does nothing else meanwhile.
type bareAdvisory struct{ pool *pgxpool.Pool }

func openBareAdvisory(ctx context.Context, at string, _ time.Duration) (locker, error) {
	pool, err := openPool(ctx, at, manyConns)
	return bareAdvisory{pool}, err
}

func (b bareAdvisory) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	key := postgres.AdvisoryKey(name)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		conn.Release()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer conn.Release()
		_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
		return err
	}, nil
}

func (b bareAdvisory) close() { b.pool.Close() }

// bareNamed is the same with GET_LOCK.
type bareNamed struct{ db *sql.DB }

func openBareNamed(_ context.Context, at string, _ time.Duration) (locker, error) {
	config, err := mysqldriver.ParseDSN(at)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true // else each statement is prepared and closed
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(fewAtATime{connector, make(chan struct{}, poolSize)})
	db.SetMaxOpenConns(manyConns)
	db.SetMaxIdleConns(manyConns)
	return bareNamed{db}, nil
}

// fewAtATime limits the connections that are being opened at a time: a busy server resets some of
// hundreds.
type fewAtATime struct {
	driver.Connector
	opening chan struct{}
}

func (f fewAtATime) Connect(ctx context.Context) (driver.Conn, error) {
	f.opening <- struct{}{}
	defer func() { <-f.opening }()
	return f.Connector.Connect(ctx)
}

func (b bareNamed) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 3600)", name).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = errors.New("GET_LOCK: not granted")
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func(ctx context.Context) error {
		defer conn.Close()
		return conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&got)
	}, nil
}

func (b bareNamed) close() { _ = b.db.Close() }
