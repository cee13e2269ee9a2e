package enginetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
)

// App is an application's pool, with an engine on it.
type App struct {
	Backend driver.Backend
	client  func(options ...dblock.Option) (Client, error)
	borrow  func(ctx context.Context) (giveBack func(), err error) // a connection, as the application's own work does
	close   func()
}

// Open opens a pool of at most so many connections on a database, and an engine on it. With a nil test it makes an
// engine on a nil pool.
type Open func(t testing.TB, db dbtest.Database, connections int) App

// Client is a dblock.Client without the type of its transactions.
type Client interface {
	Lock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error)
	TryLock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context, l Lock) error, options ...dblock.LockOption) error
	CheckSchema(ctx context.Context) error
	Close(ctx context.Context) error
}

// Lock is a dblock.Lock without the type of its transactions.
type Lock interface {
	Name() string
	Token() int64
	Context() context.Context
	Unlock(ctx context.Context) error
}

// OnPgx opens pgx pools.
func OnPgx(engine func(*pgxpool.Pool) driver.Engine[pgx.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, connections int) App {
		if t == nil {
			return app(engine(nil))
		}
		t.Helper()
		config, err := pgxpool.ParseConfig(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = int32(connections)
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		a := app(engine(pool))
		a.close = pool.Close
		a.borrow = func(ctx context.Context) (func(), error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return conn.Release, nil
		}
		return a
	}
}

// OnSQL opens pools of database/sql.
func OnSQL(engine func(*sql.DB) driver.Engine[*sql.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, connections int) App {
		if t == nil {
			return app(engine(nil))
		}
		t.Helper()
		pool := db.SQL(t)
		pool.SetMaxOpenConns(connections)
		a := app(engine(pool))
		a.close = func() { _ = pool.Close() }
		a.borrow = func(ctx context.Context) (func(), error) {
			conn, err := pool.Conn(ctx)
			if err != nil {
				return nil, err
			}
			return func() { _ = conn.Close() }, nil
		}
		return a
	}
}

func app[TX any](engine driver.Engine[TX]) App {
	return App{Backend: engine, client: func(options ...dblock.Option) (Client, error) {
		c, err := dblock.New(engine, options...)
		if err != nil {
			return nil, err
		}
		return client[TX]{c}, nil
	}}
}

type client[TX any] struct{ *dblock.Client[TX] }

func (c client[TX]) Lock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error) {
	return plain(c.Client.Lock(ctx, name, options...))
}

func (c client[TX]) TryLock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error) {
	return plain(c.Client.TryLock(ctx, name, options...))
}

func (c client[TX]) Do(ctx context.Context, name string, fn func(context.Context, Lock) error, options ...dblock.LockOption) error {
	return c.Client.Do(ctx, name, func(ctx context.Context, l *dblock.Lock[TX]) error { return fn(ctx, l) }, options...)
}

// plain keeps a nil *Lock from becoming a Lock that is not nil.
func plain[TX any](l *dblock.Lock[TX], err error) (Lock, error) {
	if l == nil {
		return nil, err
	}
	return l, err
}
