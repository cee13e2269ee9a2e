package suite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// App is an application's pool, with an engine on it.
type App struct {
	Backend driver.Backend
	client  func(options ...dblock.Option) (Client, error)
	// clientOn makes clients on an engine with another Backend.
	clientOn func(b driver.Backend) func(options ...dblock.Option) (Client, error)
	borrow   func(ctx context.Context) (giveBack func(), err error) // a connection, as the application's own work does
	close    func()
	spied    func(t testing.TB) App // opens the pool anew, so that a spy sees the statements of a transaction that was begun under it
	idle     idleSessions
	mover    mover // nil: the clock of the database is moved by SQL

	// begin opens a transaction of the application's.
	begin func(ctx context.Context, level sql.IsolationLevel) (Tx, error)
	// makeGuard and guard, and release, are what Guard and UnlockTx do, without what the client
	// knows already.
	makeGuard func(ctx context.Context, h driver.Held) error
	guard     func(ctx context.Context, tx Tx, h driver.Held) error
	release   func(ctx context.Context, tx Tx, h driver.Held) error
}

// idleSessions calls look for each connection of the pool that is idle, once the one of a spied
// transaction is, or has been closed.
type idleSessions func(t testing.TB, w *spy, look func(conn string, query query))

// query calls row for each row of the answer.
type query func(text string, row func(values []string)) error

// Tx is a transaction of the application's, without its type.
type Tx interface {
	exec(ctx context.Context, statement string) error
	number(ctx context.Context, query string) (int64, error)
	// nested is a savepoint's transaction, where the driver has such: another value for the same
	// transaction.
	nested(ctx context.Context) (Tx, error)
	commit(ctx context.Context) error
	rollback() error
}

// Open opens a pool of at most so many connections on a database, and an engine on it. With a nil
// test it makes an engine on a nil pool.
type Open func(t testing.TB, db dbtest.Database, connections int) App

// Client is a dblock.Client without the type of its transactions.
type Client interface {
	Lock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error)
	TryLock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error)
	Resume(ctx context.Context, name string, token int64) (Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context, l Lock) error, options ...dblock.LockOption) error
	LockTx(ctx context.Context, tx Tx, names ...string) error
	TryLockTx(ctx context.Context, tx Tx, names ...string) error
	LockAll(ctx context.Context, names []string, options ...dblock.LocksOption) (Locks, error)
	TryLockAll(ctx context.Context, names []string, options ...dblock.LocksOption) (Locks, error)
	OncePer(ctx context.Context, name string, interval time.Duration, fn func(ctx context.Context) error, options ...dblock.RunOption) (bool, error)
	Every(ctx context.Context, name string, interval time.Duration, fn job, options ...dblock.RunOption) error
	EveryAt(ctx context.Context, name string, schedule *dblock.Schedule, fn job, options ...dblock.RunOption) error
	OnceAt(ctx context.Context, name string, slot time.Time, fn job, options ...dblock.RunOption) (bool, error)
	oncePer(ctx context.Context, name string, interval time.Duration, fn job, options ...dblock.RunOption) (bool, error)
	Runs(ctx context.Context, name string) iter.Seq2[dblock.Run, error]
	Ask(ctx context.Context, name, reason string) error
	Break(ctx context.Context, name, reason string, tokens ...int64) (int, error)
	Inspect(ctx context.Context, name string) (inspect.Info, error)
	Why(ctx context.Context, name string) ([]inspect.Info, error)
	List(ctx context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error]
	Watch(ctx context.Context, name string) iter.Seq2[inspect.Info, error]
	Events(ctx context.Context, f inspect.EventFilter) iter.Seq2[inspect.Event, error]
	Stats() dblock.Stats
	Ping(ctx context.Context) error
	Sessions(ctx context.Context, f inspect.SessionFilter) iter.Seq2[inspect.Session, error]
	Jobs(ctx context.Context) iter.Seq2[dblock.Run, error]
	CheckSchema(ctx context.Context) error
	Close(ctx context.Context) error
}

// Locks are dblock.Locks without the type of their transactions.
type Locks interface {
	Names() []string
	Tokens() map[string]int64
	Context() context.Context
	Unlock(ctx context.Context) error
}

// Lock is a dblock.Lock without the type of its transactions.
type Lock interface {
	Name() string
	Token() int64
	Context() context.Context
	Unlock(ctx context.Context) error
	Downgrade(ctx context.Context) error
	TryUpgrade(ctx context.Context) error
	Raise(ctx context.Context, token int64) (int64, error)
	Extend(ctx context.Context, d time.Duration) error
	Detach(ctx context.Context, d time.Duration) error
	Record(ctx context.Context, kind, detail string) error
	Asked() <-chan string
	Until() time.Time
	Guard(ctx context.Context, tx Tx) error
	UnlockTx(ctx context.Context, tx Tx) error
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
		config.ConnConfig.Tracer = tracer{}
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
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
func OnSQL(engine func(*sql.DB) driver.Engine[*sql.Tx]) Open {
	return func(t testing.TB, db dbtest.Database, connections int) App {
		if t == nil {
			return app(engine(nil))
		}
		t.Helper()
		return onSQL(engine, db.SQL(t), db.DSN, connections)
	}
}

func onSQL(engine func(*sql.DB) driver.Engine[*sql.Tx], pool *sql.DB, dsn string, connections int) App {
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
func OnNothing(engine func(db dbtest.Database) driver.Engine[*sql.Tx]) Open {
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

func (t sqlTx) nested(context.Context) (Tx, error) { return t, nil }

func (t sqlTx) commit(context.Context) error { return t.tx.Commit() } // it ends with the context that it began with
func (t sqlTx) rollback() error              { return t.tx.Rollback() }

// typed is the transaction as the engine knows it.
func typed[TX any](tx Tx) TX {
	if t, ok := tx.(pgxTx); ok {
		return any(t.tx).(TX)
	}
	return any(tx.(sqlTx).tx).(TX)
}

func app[TX any](engine driver.Engine[TX]) App {
	onSideConn := func(ctx context.Context, do func(context.Context, driver.Upkeep) error) error {
		up, err := engine.Upkeep(ctx, "beside")
		if err != nil {
			return err
		}
		defer up.Close()
		return do(ctx, up)
	}
	on := func(b driver.Backend) func(options ...dblock.Option) (Client, error) {
		engine := engine
		engine.Backend = b
		return func(options ...dblock.Option) (Client, error) {
			c, err := dblock.New(engine, options...)
			if err != nil {
				return nil, err
			}
			return client[TX]{c, inspect.New(c)}, nil
		}
	}
	mover, _ := engine.Backend.(mover)
	return App{
		Backend:  engine,
		mover:    mover,
		client:   on(engine.Backend),
		clientOn: on,
		makeGuard: func(ctx context.Context, h driver.Held) error {
			return engine.Transactions.MakeGuard(ctx, h, onSideConn)
		},
		guard: func(ctx context.Context, tx Tx, h driver.Held) error {
			return engine.Transactions.Guard(ctx, typed[TX](tx), h, onSideConn)
		},
		release: func(ctx context.Context, tx Tx, h driver.Held) error {
			return engine.Transactions.ReleaseTx(ctx, typed[TX](tx), h, driver.Detachment{}, onSideConn)
		},
	}
}

type client[TX any] struct {
	*dblock.Client[TX]
	*inspect.Inspector
}

func (c client[TX]) Inspect(ctx context.Context, name string) (inspect.Info, error) {
	return c.Inspector.Lock(ctx, name)
}

func (c client[TX]) Lock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error) {
	return plain(c.Client.Lock(ctx, name, options...))
}

func (c client[TX]) TryLock(ctx context.Context, name string, options ...dblock.LockOption) (Lock, error) {
	return plain(c.Client.TryLock(ctx, name, options...))
}

func (c client[TX]) Resume(ctx context.Context, name string, token int64) (Lock, error) {
	return plain(c.Client.Resume(ctx, name, token))
}

func (c client[TX]) Do(ctx context.Context, name string, fn func(context.Context, Lock) error, options ...dblock.LockOption) error {
	return c.Client.Do(ctx, name, func(ctx context.Context, l *dblock.Lock[TX]) error { return fn(ctx, held[TX]{l}) }, options...)
}

func (c client[TX]) LockTx(ctx context.Context, tx Tx, names ...string) error {
	return c.Client.LockTx(ctx, typed[TX](tx), names...)
}

func (c client[TX]) TryLockTx(ctx context.Context, tx Tx, names ...string) error {
	return c.Client.TryLockTx(ctx, typed[TX](tx), names...)
}

func (c client[TX]) LockAll(ctx context.Context, names []string, options ...dblock.LocksOption) (Locks, error) {
	return locksOf(c.Client.LockAll(ctx, names, options...))
}

func (c client[TX]) TryLockAll(ctx context.Context, names []string, options ...dblock.LocksOption) (Locks, error) {
	return locksOf(c.Client.TryLockAll(ctx, names, options...))
}

func locksOf[TX any](l *dblock.Locks[TX], err error) (Locks, error) {
	if l == nil {
		return nil, err
	}
	return l, err
}

func (c client[TX]) OncePer(ctx context.Context, name string, interval time.Duration, fn func(context.Context) error, options ...dblock.RunOption) (bool, error) {
	if fn == nil {
		return c.Client.OncePer(ctx, name, interval, nil, options...)
	}
	return c.oncePer(ctx, name, interval, func(ctx context.Context, _ time.Time) error { return fn(ctx) }, options...)
}

// job is what OncePer and OnceAt run in a slot, without its lock.
type job func(ctx context.Context, slot time.Time) error

func (c client[TX]) oncePer(ctx context.Context, name string, interval time.Duration, fn job, options ...dblock.RunOption) (bool, error) {
	return c.Client.OncePer(ctx, name, interval, typedJob[TX](fn), options...)
}

func (c client[TX]) Every(ctx context.Context, name string, interval time.Duration, fn job, options ...dblock.RunOption) error {
	return c.Client.Every(ctx, name, interval, typedJob[TX](fn), options...)
}

func (c client[TX]) EveryAt(ctx context.Context, name string, schedule *dblock.Schedule, fn job, options ...dblock.RunOption) error {
	return c.Client.EveryAt(ctx, name, schedule, typedJob[TX](fn), options...)
}

func (c client[TX]) OnceAt(ctx context.Context, name string, slot time.Time, fn job, options ...dblock.RunOption) (bool, error) {
	return c.Client.OnceAt(ctx, name, slot, typedJob[TX](fn), options...)
}

// typedJob keeps a nil job nil.
func typedJob[TX any](fn job) func(ctx context.Context, l *dblock.Lock[TX], slot time.Time) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, _ *dblock.Lock[TX], slot time.Time) error { return fn(ctx, slot) }
}

type held[TX any] struct{ *dblock.Lock[TX] }

func (l held[TX]) Raise(ctx context.Context, token int64) (int64, error) {
	return l.Core().Raise(ctx, token)
}

func (l held[TX]) Guard(ctx context.Context, tx Tx) error { return l.Lock.Guard(ctx, typed[TX](tx)) }
func (l held[TX]) UnlockTx(ctx context.Context, tx Tx) error {
	return l.Lock.UnlockTx(ctx, typed[TX](tx))
}

// plain keeps a nil *Lock from becoming a Lock that is not nil.
func plain[TX any](l *dblock.Lock[TX], err error) (Lock, error) {
	if l == nil {
		return nil, err
	}
	return held[TX]{l}, err
}
