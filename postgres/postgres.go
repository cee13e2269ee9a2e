// Package postgres keeps dblock's locks in tables of PostgreSQL 13 or newer.
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

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// New keeps locks through the application's pgx pool. The pool stays the application's: dblock
// never closes it, and opens connections beside it, with the pool's own configuration and hooks:
// one for heartbeats, on which it also listens for wake-ups (see Listen), and up to two for work
// beside the application's transactions, when there is such work. WithinPool takes them out of the
// pool. pg_stat_activity shows them under the application_name dblock/<app>, where app is WithApp.
// The tables are found by the search_path of the pool's connections, or by Schema. Run migrate.Up
// or the files of package migrations first.
//
// Connections whose texts the server converts are ErrConfig, also that of a transaction: in a
// database whose encoding is neither UTF8 nor SQL_ASCII set client_encoding=UTF8 in the DSN. A
// character that the encoding of the database lacks is ErrConfig of the call that has it.
func New(pool *pgxpool.Pool, options ...Option) driver.Engine[pgx.Tx] {
	e := newEngine(pgxDB{pool}, options...)
	return driver.Engine[pgx.Tx]{Backend: e, Transactions: placedTxs(e, ofPgx)}
}

// NewSQL keeps locks through database/sql, with any PostgreSQL driver whose errors tell their
// SQLSTATE (pgx's stdlib, lib/pq, bun's pgdriver). Each client reserves connections of the pool:
// one for heartbeats, on which it also listens for wake-ups, and one for work beside the
// application's transactions (two where the pool allows 8). The pool must allow 3: these and one
// for all other work; fewer is ErrConfig. A transaction of the application's has a connection of
// its own: with Guard, LockTx or UnlockTx allow one more for each that is open at a time.
//
// A client listens for its grants where the driver is pgx's stdlib, also in a wrapper that has a
// method Raw (otelsql). In any other case it polls, in one statement for all waiters of a client,
// and so with lib/pq and pgdriver: after an eighth of the time for which a name has stood still,
// every 5 to 100 ms. The client logs the reason once, at level INFO; for a driver that cannot
// listen, at level DEBUG. With Listen a client listens whatever the driver, on a connection beside
// the pool.
//
// Behind stdlib.OpenDBFromPool the limit is that of the pgxpool, which database/sql does not know:
// its default is 4 on a small machine, enough for one client.
//
// Clients that share a pool reserve their connections each: allow as many for each, and one more. A
// client that would take the last one is ErrConfig at its first lock; where the limit is not known,
// ErrUnavailable.
//
// The reserved connections never go back to the pool; pg_stat_activity shows them as New's.
func NewSQL(db *sql.DB, options ...Option) driver.Engine[*sql.Tx] {
	e := newEngine(sqlDB{db}, options...)
	return driver.Engine[*sql.Tx]{Backend: e, Transactions: placedTxs(e, ofSQL)}
}

// engine is the SQL of every transition; db is how statements reach the server.
type engine struct {
	db          database
	side        *connpool.Pool[upkeep]
	app         atomic.Value  // of the client that attended last: a string
	lockTimeout string        // how long a statement of ours waits for a row that is locked
	echo        time.Duration // how long a listener waits for its own first notification
	in          *tables.In    // where the tables are; nil: where the search_path leads
	misplaced   error         // why that cannot be
	direct      *directConn   // how listeners connect that do not use the line of their heartbeats; nil: they do
	anyServer   bool          // the application knows what it does
	strict      atomic.Bool   // a statement by itself has failed at the application's isolation level
}

const (
	// usualLockTimeout is time enough for any transaction of dblock's own to pass. What takes
	// longer is a transaction of the application's, and nobody keeps a connection to wait for that.
	usualLockTimeout = "100ms"
	// briefly is for a request that must not wait.
	briefly = "20ms"
)

func newEngine(db database, options ...Option) *engine {
	e := &engine{db: db, lockTimeout: usualLockTimeout, echo: echoTimeout}
	for _, o := range options {
		if o != nil {
			o(e)
		}
	}
	if e.in != nil {
		e.db = placedDB{e.db, e.in}
	}
	e.side = newSidePool(e)
	return e
}

func (e *engine) lockTimeoutFor(wait bool) string {
	if wait {
		return e.lockTimeout
	}
	return briefly
}

// transact runs statements as one transaction at READ COMMITTED, which waits no longer for any row
// than the lock timeout: ErrBusy.
func (e *engine) transact(ctx context.Context, statements ...statement) error {
	return e.db.transact(ctx, append([]statement{query(postgresdb.SetLockTimeout, e.lockTimeout)}, statements...)...)
}

// alone runs a statement that decides by the name's row only, with a lock timeout in it. It is a
// transaction by itself: at the level that the application has made its default. Above READ
// COMMITTED a row that many want fails all but one of them, without a trace: there the statement
// travels with BEGIN and COMMIT, from the first time on that this is seen.
func (e *engine) alone(ctx context.Context, s statement) error {
	if !e.strict.Load() {
		err := e.db.exec(ctx, s)
		if pgserver.State(err) != pgserver.SerializationFailure {
			return err
		}
		e.strict.Store(true)
	}
	return e.db.transact(ctx, s)
}

func (e *engine) Validate() error {
	if err := driver.Join(e.misplaced, e.db.validate()); err != nil {
		return err
	}
	return e.direct.validate()
}

func (e *engine) Connections() (inUse, most int) { return e.db.connections() }

func (e *engine) DropReadOnly(ctx context.Context) { e.db.dropReadOnly(ctx) }
