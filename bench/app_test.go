package bench

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// app is an application with its pool: of pgx on PostgreSQL, of database/sql elsewhere. What dblock
// is compared with runs on the same pool.
type app struct {
	database
	pgx    *pgxpool.Pool
	db     *sql.DB
	update *sql.Stmt
	hook   fakedb.Hook // sees the calls of its clients' engines; nil: nothing does
}

// open opens a pool of up to conns connections, which counts its statements where count is not nil.
func (d database) open(ctx context.Context, conns int, count *counter) (*app, error) {
	a := &app{database: d}
	if d.engine == migrate.Postgres {
		config, err := pgxpool.ParseConfig(d.dsn)
		if err != nil {
			return nil, err
		}
		config.MaxConns = int32(conns)
		if count != nil {
			config.ConnConfig.Tracer = count
		}
		a.pgx, err = pgxpool.NewWithConfig(ctx, config)
		return a, err
	}
	var err error
	if a.db, err = sql.Open(d.driver, d.dsn); err != nil {
		return nil, err
	}
	if count != nil {
		a.db = sql.OpenDB(counted{a.db.Driver(), d.dsn, count})
	}
	a.db.SetMaxOpenConns(conns)
	a.db.SetMaxIdleConns(conns)
	a.update, err = a.db.PrepareContext(ctx, "UPDATE bench_rows SET n = n + 1 WHERE id = ?")
	return a, err
}

func (d database) mustOpen(b testing.TB, conns int, count *counter) *app {
	b.Helper()
	a, err := d.open(b.Context(), conns, count)
	require.NoError(b, err)
	b.Cleanup(a.close)
	return a
}

func (a *app) close() {
	if a.pgx != nil {
		a.pgx.Close()
		return
	}
	_ = a.update.Close()
	_ = a.db.Close()
}

// commit is the reference: one row updated by its primary key, in a prepared statement that is a
// transaction of its own. Nothing that commits can be cheaper.
func (a *app) commit(ctx context.Context, id int) error {
	if a.pgx != nil {
		_, err := a.pgx.Exec(ctx, "UPDATE bench_rows SET n = n + 1 WHERE id = $1", id)
		return err
	}
	_, err := a.update.ExecContext(ctx, id)
	return err
}

func (a *app) exec(ctx context.Context, statement string) error {
	if a.pgx != nil {
		_, err := a.pgx.Exec(ctx, statement)
		return err
	}
	_, err := a.db.ExecContext(ctx, statement)
	return err
}

// number returns the single number that a query selects.
func (a *app) number(ctx context.Context, query string) (n int, err error) {
	if a.pgx != nil {
		err = a.pgx.QueryRow(ctx, query).Scan(&n)
	} else {
		err = a.db.QueryRowContext(ctx, query).Scan(&n)
	}
	return n, err
}

// rest closes the pool's idle connections, so that those are left which are in use.
func (a *app) rest() {
	if a.pgx != nil {
		a.pgx.Reset()
		return
	}
	a.db.SetMaxIdleConns(0)
}

// watch looks every millisecond how many of the pool's connections are in use, until stop is
// called, which returns how many that were at most.
func (a *app) watch() (stop func() int) {
	done, most := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-done:
				most <- n
				return
			case <-tick.C:
				n = max(n, a.inUse())
			}
		}
	}()
	return func() int { close(done); return <-most }
}

func (a *app) inUse() int {
	if a.pgx != nil {
		return int(a.pgx.Stat().AcquiredConns())
	}
	return a.db.Stats().InUse
}

// own counts the connections that dblock has opened beside the pools, where this pool is the only
// one of its database.
func (a *app) own(b testing.TB) int {
	b.Helper()
	if a.pgx != nil {
		return a.connections(b, a) - int(a.pgx.Stat().TotalConns())
	}
	return a.connections(b, a) - a.db.Stats().OpenConnections
}

// locker is a client of any kind of locks.
type locker interface {
	lock(ctx context.Context, name string, options ...dblock.LockOption) (held, error)
}

// ownLocker is a client of a server's own locks.
type ownLocker struct{ dblock.Locker }

func (c ownLocker) lock(ctx context.Context, name string, options ...dblock.LockOption) (held, error) {
	return c.Lock(ctx, name, options...)
}

// client is a dblock.Client, whatever its transactions are.
type client interface {
	locker
	tryLock(ctx context.Context, name string) (held, error)
	lockAll(ctx context.Context, names []string) (unlocker, error)
	inspector() *inspect.Inspector
	Close(ctx context.Context) error
}

type held = dblock.Handle

type unlocker interface {
	Unlock(ctx context.Context) error
}

type clientOf[TX any] struct{ *dblock.Client[TX] }

func (c clientOf[TX]) lock(ctx context.Context, name string, options ...dblock.LockOption) (held, error) {
	return c.Lock(ctx, name, options...)
}

func (c clientOf[TX]) tryLock(ctx context.Context, name string) (held, error) {
	return c.TryLock(ctx, name)
}

func (c clientOf[TX]) lockAll(ctx context.Context, names []string) (unlocker, error) {
	return c.LockAll(ctx, names)
}

func (c clientOf[TX]) inspector() *inspect.Inspector { return inspect.New(c.Client) }

func newClient[TX any](engine dblock.Engine[TX], options []dblock.Option) (client, error) {
	c, err := dblock.New(engine, append([]dblock.Option{dblock.WithLogger(slog.New(slog.DiscardHandler))},
		options...)...)
	return clientOf[TX]{c}, err
}

// backend is the engine without its type of transactions.
func (a *app) backend() driver.Backend {
	switch a.engine {
	case migrate.Postgres:
		return inside.Of(postgres.New(a.pgx)).Backend
	case migrate.MySQL:
		return inside.Of(mysql.New(a.db)).Backend
	}
	return inside.Of(sqlite.New(a.db)).Backend
}

func (a *app) client(options ...dblock.Option) (client, error) {
	switch a.engine {
	case migrate.Postgres:
		return newClient(fakedb.Through(postgres.New(a.pgx), a.hook), options)
	case migrate.MySQL:
		return newClient(fakedb.Through(mysql.New(a.db), a.hook), options)
	case migrate.SQLite:
		return newClient(fakedb.Through(sqlite.New(a.db), a.hook), options)
	}
	return nil, fmt.Errorf("no engine %q", a.engine)
}

func (a *app) mustClient(b testing.TB, options ...dblock.Option) client {
	b.Helper()
	c, err := a.client(options...)
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, c.Close(context.Background())) })
	return c
}

// pair takes a lock and gives it back.
func pair(ctx context.Context, c locker, name string) error {
	l, err := c.lock(ctx, name)
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}
