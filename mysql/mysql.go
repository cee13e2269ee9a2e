// Package mysql keeps dblock's locks in tables of MySQL 8.0 or newer and MariaDB 10.6 or newer.
//
// To take a free lock is one UPDATE that decides by the lock's row alone, after an INSERT where the
// name has none; to release it when nobody waits is another. A third hands a lock over to a waiter
// that lives and wants the whole name, or to a run, and a fourth queues for a lock (short.go). Each
// is its own transaction, and a process that stops in between keeps nothing locked.
//
// Everything else is a transaction at READ COMMITTED, whatever the application's default, that
// first locks the name's row and decides in later statements. It is several round trips: a process
// stopped in the middle of one keeps that name's row locked for a TTL, after which the server ends
// its connection. So is all that is shared: no statement writes the lock's row and a share's.
//
// A grant to another session ends the sleep of that session's listener, with KILL
// QUERY on the connection that holds the session's named lock. Processes that wait for each other's
// locks must therefore share a database user, or have the privilege to kill (CONNECTION_ADMIN);
// otherwise a waiter notices its grant only when its listener next looks, within seconds.
//
// Named makes a client of the server's own named locks, GET_LOCK, which need no tables
// (internal/named).
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/tables"
)

// New keeps locks through the application's pool, opened with github.com/go-sql-driver/mysql. The
// pool stays the application's: dblock never closes it. Each client reserves one of its connections
// for heartbeats, one for its transactions, and, once somebody has waited, one to listen for
// wake-ups. For its transactions, which hand over, queue and share, it takes up to
// a quarter of the pool, 8 at most, and gives back after half a TTL what it does not use. These
// connections have a wait_timeout of one TTL, so that the row of a name does not stay locked where
// the process is stopped in the middle of a transaction.
//
// The pool must allow 3 connections: for heartbeats, for transactions, and for everything else.
// With 3 a client polls for its grants instead of listening; to listen takes 4. A
// transaction of the application's has a connection of its own: with Guard, LockTx or UnlockTx
// allow one more for each that is open at a time. A smaller pool is ErrConfig. Clients that share a
// pool reserve their connections each: one that would take the last is ErrConfig at its first lock.
// Run migrate.Up or the files of package migrations first.
//
// The tables are those of the pool's default database. LockTx, Guard and UnlockTx need a
// transaction whose default database is the same; its own tables may be in another one of the
// server, under their full names. All connections are the pool's, whose connection attributes are
// in its DSN: a pool of dblock's own with connectionAttributes=program_name:dblock/orders makes
// them known to performance_schema.
//
// In a Galera cluster and in a group with several primaries leases work with any number of writing
// nodes. LockTx, TryLockTx and Guard are ErrConfig there without SingleWriter.
func New(db *sql.DB, options ...Option) driver.Engine[*sql.Tx] {
	e := &engine{db: db, prepared: preparedOn(db), rowTimeout: rowTimeout, nap: longestNap, proof: proofTimeout}
	for _, option := range options {
		option(e)
	}
	e.side = newSidePool(e)
	return driver.Engine[*sql.Tx]{Backend: e, Transactions: transactions{e}}
}

// Option is a setting of New.
type Option func(*engine)

// SingleWriter says that all clients of these locks use the same node of a Galera cluster
// (wsrep_on=ON), or of a group with several primaries (group_replication_single_primary_mode=OFF),
// at any time. LockTx, TryLockTx and Guard rely on row locks, which hold on one node only: without
// SingleWriter they are ErrConfig on such a server. dblock cannot check what SingleWriter says:
// where it is not true, two transactions on two nodes have the same lock at once. A fail-over to
// another node ends the transactions that were open. Galera also ends a transaction whose wait in
// LockTx is over with its context: then the error is one of a deadlock. On any other server it
// changes nothing. Default: not said.
func SingleWriter() Option { return func(e *engine) { e.singleWriter = true } }

// Database has a client find dblock's tables in a database of the server, whatever the default
// database of the connections that it uses, also of those with the application's transactions.
// migrate.In makes them there. A name is letters, digits, "_", "$" and "-", at most 63 bytes: any
// other is ErrConfig from dblock.New. Default: the default database.
//
// The tables of packages fence and optimistic stay in the transaction's default database.
func Database(name string) Option {
	in, err := tables.New(name)
	return func(e *engine) {
		e.prepared.in = in
		if err != nil {
			e.misplaced = driver.Fail(driver.ErrConfig, fmt.Errorf("mysql.Database: %w", err))
		}
	}
}

// AnyServer has a client use whatever server it finds. Without it the first lock is ErrConfig on
// servers that speak MySQL's protocol, and whose locks are not InnoDB's: TiDB, OceanBase, Vitess
// and PlanetScale. Nothing was tested there. Default: not said.
func AnyServer() Option { return func(e *engine) { e.anyServer = true } }

const (
	// rowTimeout is how long a statement of ours comes back to a row that is locked: time enough
	// for any transaction of dblock's own to pass. What takes longer is the application's, and
	// nobody keeps a connection to wait for that.
	rowTimeout = 100 * time.Millisecond
	// firstPause and longestPause bound the wait between two tries to lock a row.
	firstPause   = 500 * time.Microsecond
	longestPause = 8 * time.Millisecond
)

type engine struct {
	db       *sql.DB
	prepared *prepared
	side     *connpool.Pool[upkeep]
	reads    atomic.Int32 // what a plain SELECT of this pool sees: unknown, committed, dirty
	// of the server that the latest reserved connection is on; nil before the first
	info         atomic.Pointer[serverInfo]
	rowTimeout   time.Duration
	nap          time.Duration // the most that a statement of a listener sleeps
	proof        time.Duration // how long a listener waits for its own first KILL
	singleWriter bool
	anyServer    bool  // the application knows what it does
	misplaced    error // why the tables cannot be where the application says
	rowQueues    rowQueues
	obstructed   func() // tells a test that a row was found locked; else nil
}

const (
	unknown int32 = iota
	committed
	dirty
)

func (e *engine) Connections() (inUse, most int) {
	s := e.db.Stats()
	return s.InUse, s.MaxOpenConnections
}

func (e *engine) Validate() error {
	if e.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	if e.misplaced != nil {
		return e.misplaced
	}
	return connpool.Enough(e.db.Stats().MaxOpenConnections, "SetMaxOpenConns(3)")
}

// queries run one by one on any connection, each its own transaction at the application's isolation
// level.
func (e *engine) queries() *mysqldb.Queries { return mysqldb.New(e.prepared) }

// transact runs work as one transaction at READ COMMITTED and commits it. The listeners of the
// sessions that work then names in wake are woken, on the same connection: the pool may have no
// other.
func (e *engine) transact(ctx context.Context, work func(q *mysqldb.Queries) (wake []string, err error)) error {
	return e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) { return work(mysqldb.New(db)) })
}

// transactWith is transact for work with statements that sqlc does not know.
func (e *engine) transactWith(ctx context.Context, work func(db mysqldb.DBTX) (wake []string, err error)) error {
	if e.side.Attended() {
		return e.transactApart(ctx, work)
	}
	if err := e.prepared.catchUp(ctx); err != nil {
		return mysqlserver.Interpret(err)
	}
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return mysqlserver.Interpret(err)
	}
	var wake []string
	err = transactOn(ctx, conn, e.prepared, func(db mysqldb.DBTX) (err error) {
		wake, err = work(db)
		return err
	})
	if errors.Is(err, errUnanswered) {
		go mysqlserver.Discard(conn)
		return mysqlserver.Interpret(err)
	}
	defer conn.Close()
	if err == nil {
		wakeUp(ctx, conn, wake)
	}
	return mysqlserver.Interpret(err)
}

// transactApart runs work on a connection of the side pool. Between two statements the process may
// be stopped, and its transaction would keep the name's row locked: there the server ends it after
// a TTL of silence.
func (e *engine) transactApart(ctx context.Context, work func(db mysqldb.DBTX) (wake []string, err error)) error {
	return mysqlserver.Interpret(e.side.Do(ctx, func(ctx context.Context, u upkeep) error {
		return u.transactWith(ctx,
			work)
	}))
}

// errUnanswered: a transaction whose end the server has not acknowledged. Its connection must be
// discarded.
var errUnanswered = errors.New("the end of the transaction was not answered")

// finish ends a transaction, and waits for that no longer than ctx allows: database/sql takes no
// context there.
func finish(ctx context.Context, end func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- end() }() // until the server answers, or the network gives up
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return driver.Fail(errUnanswered, ctx.Err())
	}
}

// transactOn runs a transaction on a connection. An error of work, or a context that ends, rolls it
// back.
func transactOn(ctx context.Context, conn *sql.Conn, p *prepared, work func(db mysqldb.DBTX) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := work(preparedTx{p, tx}); err != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), mysqlserver.CloseTimeout)
		defer cancel()
		if undone := finish(within, tx.Rollback); !errors.Is(undone, sql.ErrTxDone) {
			err = driver.Join(err, undone)
		}
		return err
	}
	err = mysqlserver.AtCommit(finish(ctx, tx.Commit))
	if errors.Is(err, sql.ErrTxDone) { // its context ended, and database/sql has rolled it back
		return driver.Fail(driver.ErrUnavailable, driver.Join(ctx.Err(), err))
	}
	return err
}
