package suite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// App is an application's pool, with an engine on it.
type App struct {
	driver.Engine[Tx]
	borrow func(ctx context.Context) (giveBack func(), err error) // a connection, as the application's own work does
	close  func()
	spied  func(t testing.TB) App // opens the pool anew: a spy sees the statements of a transaction begun under it
	idle   idleSessions
	mover  mover // nil: the clock of the database is moved by SQL

	// begin opens a transaction of the application's.
	begin func(ctx context.Context, level sql.IsolationLevel) (Tx, error)
}

// engine is the engine as an application has it.
func (a App) engine() dblock.Engine[Tx] { return *inside.Make[dblock.Engine[Tx]](a.Engine) }

// hook has the calls of the engine go through a hook.
func (a *App) hook(h fakedb.Hook) { a.Backend = fakedb.Hooked(a.Backend, h) }

// idleSessions calls look for each connection of the pool that is idle, once the one of a spied
// transaction is, or has been closed.
type idleSessions func(t testing.TB, w *spy, look func(conn string, query query))

// query calls row for each row of the answer.
type query func(text string, row func(values []string)) error

// Tx is a transaction of the application's, without its type.
type Tx interface {
	exec(ctx context.Context, statement string) error
	number(ctx context.Context, query string) (int64, error)
	// rows runs a query and reads one of its rows. The rows stay open until done is called.
	rows(ctx context.Context, query string) (done func(), err error)
	// nested is a savepoint's transaction, where the driver has such: another value for the same
	// transaction.
	nested(ctx context.Context) (Tx, error)
	commit(ctx context.Context) error
	rollback() error
}

// Open opens a pool of at most so many connections on a database, and an engine on it. With a nil
// test it makes an engine on a nil pool.
type Open func(t testing.TB, db dbtest.Database, connections int) App

// Client is a client whose transactions are those of the suite, with what looks at its locks.
type Client struct {
	*dblock.Client[Tx]
	*inspect.Inspector
	*jobs.Runner
}

// newClient makes a client of an application.
func newClient(a App, options ...dblock.Option) (Client, error) {
	c, err := dblock.New(a.engine(), options...)
	if err != nil {
		return Client{}, err
	}
	return Client{c, inspect.New(c), jobs.New(c)}, nil
}

// Lock is that of the client.
func (c Client) Lock(ctx context.Context, name string, options ...dblock.LockOption) (*dblock.Lock, error) {
	return c.Client.Lock(ctx, name, options...)
}

// Inspect is Lock of the inspector.
func (c Client) Inspect(ctx context.Context, name string) (inspect.Info, error) {
	return c.Inspector.Lock(ctx, name)
}

// OnPgx opens pgx pools.
func OnPgx(engine func(*pgxpool.Pool) dblock.Engine[pgx.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, connections int) App {
		if t == nil {
			return app(engine(nil))
		}
		t.Helper()
		config, err := pgxpool.ParseConfig(db.DSN)
		require.NoError(t, err)
		config.MaxConns = int32(connections)
		config.ConnConfig.Tracer = tracer{}
		db.Keep(config.ConnConfig)
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		a := app(engine(pool))
		a.close = pool.Close
		a.spied = func(testing.TB) App { return a }
		a.idle = func(_ testing.TB, _ *spy, look func(string, query)) {
			for _, conn := range pool.AcquireAllIdle(context.Background()) {
				look(fmt.Sprint("backend ", conn.Conn().PgConn().PID()), func(text string, row func([]string)) error {
					rows, err := conn.Query(context.Background(), text, pgx.QueryExecModeSimpleProtocol)
					if err != nil {
						return err
					}
					defer rows.Close()
					for rows.Next() {
						var value string
						if err := rows.Scan(&value); err != nil {
							return err
						}
						row([]string{value})
					}
					return rows.Err()
				})
				conn.Release()
			}
		}
		a.borrow = func(ctx context.Context) (func(), error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return conn.Release, nil
		}
		a.begin = func(ctx context.Context, level sql.IsolationLevel) (Tx, error) {
			var options pgx.TxOptions
			if level != sql.LevelDefault {
				options.IsoLevel = pgx.TxIsoLevel(strings.ToLower(level.String()))
			}
			tx, err := pool.BeginTx(ctx, options)
			return pgxTx{tx}, err
		}
		return a
	}
}

// OnSQL opens pools of database/sql.
func OnSQL(engine func(*sql.DB) dblock.Engine[*sql.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, connections int) App {
		if t == nil {
			return app(engine(nil))
		}
		t.Helper()
		return onSQL(engine, db.SQL(t), db.DSN, connections)
	}
}

func onSQL(engine func(*sql.DB) dblock.Engine[*sql.Tx], pool *sql.DB, dsn string, connections int) App {
	pool.SetMaxOpenConns(connections)
	a := app(engine(pool))
	a.spied = func(t testing.TB) App {
		other := openSpied(pool, dsn)
		other.SetMaxIdleConns(connections)
		t.Cleanup(func() { _ = other.Close() })
		return onSQL(engine, other, dsn, connections)
	}
	a.idle = func(t testing.TB, w *spy, look func(string, query)) { idleOf(t, pool, w, look) }
	a.close = func() { _ = pool.Close() }
	a.borrow = func(ctx context.Context) (func(), error) {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		return func() { _ = conn.Close() }, nil
	}
	a.begin = func(ctx context.Context, level sql.IsolationLevel) (Tx, error) {
		tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		return sqlTx{tx}, err
	}
	return a
}

// OnNothing opens engines that have no pool and no transactions. A test that needs one of these
// ends there.
func OnNothing(engine func(db dbtest.Database) dblock.Engine[*sql.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, _ int) App {
		if t == nil {
			return app(engine(db))
		}
		a := app(engine(db))
		a.close = func() {}
		a.borrow = func(context.Context) (func(), error) {
			t.Skip("there is no pool")
			return nil, nil
		}
		a.begin = func(context.Context, sql.IsolationLevel) (Tx, error) {
			t.Skip("there are no transactions")
			return nil, nil
		}
		return a
	}
}

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) exec(ctx context.Context, statement string) error {
	_, err := t.tx.Exec(ctx, statement)
	return err
}

func (t pgxTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.tx.QueryRow(ctx, query).Scan(&n)
	return n, err
}

func (t pgxTx) rows(ctx context.Context, query string) (func(), error) {
	rows, err := t.tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	rows.Next()
	return rows.Close, rows.Err()
}

func (t pgxTx) nested(ctx context.Context) (Tx, error) {
	tx, err := t.tx.Begin(ctx)
	return pgxTx{tx}, err
}

func (t pgxTx) commit(ctx context.Context) error { return t.tx.Commit(ctx) }
func (t pgxTx) rollback() error                  { return t.tx.Rollback(context.Background()) }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) exec(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t sqlTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (t sqlTx) rows(ctx context.Context, query string) (func(), error) {
	rows, err := t.tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	rows.Next()
	return func() { _ = rows.Close() }, rows.Err()
}

func (t sqlTx) nested(context.Context) (Tx, error) { return t, nil }

func (t sqlTx) commit(context.Context) error { return t.tx.Commit() } // it ends with the context that it began with
func (t sqlTx) rollback() error              { return t.tx.Rollback() }

// app makes an App of an engine, whose transactions become those of the suite.
func app[TX any](of dblock.Engine[TX]) App {
	typed := inside.Of(of)
	mover, _ := typed.Backend.(mover)
	engine := driver.Engine[Tx]{Backend: typed.Backend}
	if typed.In != nil {
		engine.In = func(tx Tx) driver.Tx { return typed.In(typedTx[TX](tx)) }
	}
	return App{Engine: engine, mover: mover}
}

// onSideConn is a connection beside the pool.
func (a App) onSideConn(ctx context.Context, do func(context.Context, driver.Upkeep) error) error {
	up, err := a.Upkeep(ctx, "beside")
	if err != nil {
		return err
	}
	defer up.Close()
	return do(ctx, up)
}

// makeGuard, guard and release are what Guard and UnlockTx do, without what the client knows
// already.
func (a App) makeGuard(ctx context.Context, h protocol.Held) error {
	return a.In(nil).MakeGuard(ctx, h, a.onSideConn)
}

func (a App) guard(ctx context.Context, tx Tx, h protocol.Held) error {
	return a.In(tx).Guard(ctx, h, a.onSideConn)
}

func (a App) release(ctx context.Context, tx Tx, h protocol.Held) error {
	return a.In(tx).Release(ctx, h, protocol.Detachment{}, a.onSideConn)
}

// typedTx returns a transaction as the engine knows it.
func typedTx[TX any](tx Tx) (typed TX) {
	switch t := tx.(type) {
	case pgxTx:
		return any(t.tx).(TX)
	case sqlTx:
		return any(t.tx).(TX)
	}
	return typed
}

// raiseToken lifts the fencing token of a lock to at least a value, as package quorum does.
func raiseToken(ctx context.Context, l *dblock.Lock, token int64) (int64, error) {
	return inside.Of(l).Raise(ctx, token)
}
