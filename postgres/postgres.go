// Package postgres keeps dblock's locks in tables of PostgreSQL 14 or newer.
//
// run.go is the general way, which can run every op: a transaction that locks the name's row and
// reads it in one batch, and writes and commits in a second. Over pgx a batch is one round trip;
// over database/sql each statement is one. A client that is stopped in between does not keep the
// row locked: the server ends its transaction (idle_in_transaction_session_timeout). short.go has
// the short ways for common cases: one statement that decides by the name's row alone, or one
// batch. Grants are announced with NOTIFY on a channel of the waiter's session.
//
// Advisory makes a client of the server's own advisory locks, which need no tables
// (internal/advisory).
package postgres

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/tables"
)

// New keeps locks through the application's pgx pool. The pool remains the application's: dblock
// never closes it. dblock opens connections beside it, with the pool's configuration and hooks: one
// for heartbeats, on which it also listens for wake-ups (see Listen), and up to two, when needed,
// for work beside the application's transactions. WithinPool takes them out of the pool.
// pg_stat_activity shows them under the application_name dblock/<app>, where app is WithApp. The
// tables are found by the search_path of the client's first connection, or by Schema. Run
// migrate.Up or the files of package migrations first.
//
// Connections whose texts the server converts are ErrConfig, also those of a transaction: in a
// database whose encoding is neither UTF8 nor SQL_ASCII, set client_encoding=UTF8 in the DSN. A
// call with a character that the database's encoding lacks is ErrConfig.
func New(pool *pgxpool.Pool, options ...Option) engines.Engine[pgx.Tx] {
	e := newEngine(pgxDB{pool}, options...)
	return *inside.Make[engines.Engine[pgx.Tx]](driver.Engine[pgx.Tx]{
		Backend: e, In: func(tx pgx.Tx) driver.Tx { return e.inside(pgxTx{tx}) },
	})
}

// NewSQL keeps locks through database/sql, with any PostgreSQL driver whose errors tell their
// SQLSTATE (pgx's stdlib, lib/pq, bun's pgdriver). Each client reserves connections of the pool:
// one for heartbeats, on which it also listens for wake-ups, and one for work beside the
// application's transactions (two if the pool allows 8). The pool must allow 3: these and one for
// all other work; fewer is ErrConfig. A transaction of the application has a connection of its own:
// with Guard, LockTx or UnlockTx, allow one more for each that is open at a time.
//
// A client listens for its grants if the driver is pgx's stdlib, also in a wrapper that has a
// method Raw (otelsql). With any other driver, such as lib/pq and pgdriver, it polls, in one
// statement for all waiters of the client: every 5 to 100 ms, after an eighth of the time for which
// the name has not changed. The client logs the reason once, at level INFO; for a driver that
// cannot listen, at level DEBUG. With Listen a client listens whatever the driver, on a connection
// beside the pool.
//
// Each client that shares a pool reserves its own connections: allow as many for each, and one
// more. A client that would take the last one fails with ErrConfig at its first lock.
//
// Over stdlib.OpenDBFromPool the limit is that of the pgxpool, 4 by default on a small machine,
// which is enough for one client. database/sql does not know it: call SetMaxOpenConns with it.
// Close the client before the pgxpool. The pgxpool's Close waits for the reserved connections, and
// so for the client's Close. Until then heartbeats keep the client's locks, and its calls return
// ErrConfig.
//
// The reserved connections never return to the pool; pg_stat_activity shows them as New's.
func NewSQL(db *sql.DB, options ...Option) engines.Engine[*sql.Tx] {
	e := newEngine(sqlDB{db}, options...)
	return *inside.Make[engines.Engine[*sql.Tx]](driver.Engine[*sql.Tx]{
		Backend: e, In: func(tx *sql.Tx) driver.Tx { return e.inside(sqlTx{tx}) },
	})
}

// engine runs the SQL of every transition; db carries statements to the server.
type engine struct {
	db          database
	side        *connpool.Pool[upkeep]
	app         atomic.Value  // a string: the app of the client that attended last
	lockTimeout string        // bounds the wait of a statement for a locked row
	echo        time.Duration // bounds the wait of a listener for its own first notification
	tables      *tables.Place // where the tables are
	placer      placer        // over the connections of db
	misplaced   error         // the error of an invalid option Schema
	direct      *directConn   // the address of listeners; nil: they use the connection of the heartbeats
	anyServer   bool          // the application accepts every server
	strict      atomic.Bool   // a single statement has failed at the application's isolation level

	lending     context.Context
	stopLending context.CancelFunc
}

const (
	// usualLockTimeout is enough for any transaction of dblock to end. A longer one is the
	// application's, and no connection is kept to wait for it.
	usualLockTimeout = "100ms"
	// briefly is the lock timeout of a request that must not wait.
	briefly = "20ms"
)

func newEngine(db database, options ...Option) *engine {
	e := &engine{db: db, tables: new(tables.Place), lockTimeout: usualLockTimeout, echo: echoTimeout}
	e.lending, e.stopLending = context.WithCancel(context.Background())
	for _, o := range options {
		if o.set != nil {
			o.set(e)
		}
	}
	e.placer = placer{e.db, e.tables} // after the options, some of which replace db
	e.db = placedDB{e.db, e.placer}
	e.side = newSidePool(e)
	return e
}

func (e *engine) lockTimeoutFor(wait bool) string {
	if wait {
		return e.lockTimeout
	}
	return briefly
}

// transact runs statements as one transaction at READ COMMITTED. If it waits for a row for longer
// than the lock timeout, it fails with ErrBusy.
func (e *engine) transact(ctx context.Context, statements ...statement) error {
	return e.db.transact(ctx, append([]statement{query(postgresdb.SetLockTimeout, e.lockTimeout)}, statements...)...)
}

// oneStatement runs a statement that decides by the name's row only, with a lock timeout in it. The
// statement is a transaction by itself, at the application's default isolation level. Above READ
// COMMITTED, a contended row would fail all statements but one. After the first such failure, every
// statement travels with BEGIN and COMMIT.
func (e *engine) oneStatement(ctx context.Context, s statement) error {
	if !e.strict.Load() {
		err := e.db.exec(ctx, s)
		if pgserver.State(err) != pgserver.SerializationFailure {
			return err
		}
		e.strict.Store(true)
	}
	return e.db.transact(ctx, s)
}

func (e *engine) HostFolder(bool) (path string, ok bool) { return "", true }

func (e *engine) Validate() error {
	if err := driver.Join(e.misplaced, e.db.validate()); err != nil {
		return err
	}
	return e.direct.validate()
}

func (e *engine) Connections() driver.Pool { return e.db.connections() }

func (e *engine) DropReadOnly(ctx context.Context) { e.db.dropReadOnly(ctx) }
