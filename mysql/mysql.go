// Package mysql keeps dblock's locks in tables of MySQL 8.0 or newer, MariaDB 10.6 or newer, TiDB,
// and Vitess. An engine chooses the dialect when it meets its server (dialect.go).
//
// Taking a free lock is one UPDATE that decides by the lock's row alone, after an INSERT if the
// name has no row. Releasing a lock without waiters is another (short.go). Each is a transaction of
// its own, so a process that stops in between keeps nothing locked.
//
// Everything else is a transaction at READ COMMITTED, whatever the application's default, that
// first locks the name's row and decides in later statements. It takes several round trips: a
// process stopped in the middle of one keeps that name's row locked for a TTL, after which the
// server ends its connection. Shared locks always go this way, because no single statement writes
// the lock's row and a share's row.
//
// A grant to another session ends the sleep of that session's listener, with KILL QUERY on the
// connection that holds the session's named lock. Processes that wait for each other's locks must
// therefore share a database user, or have the privilege to kill (CONNECTION_ADMIN). Otherwise a
// waiter notices its grant only when its listener next looks, within seconds.
//
// On TiDB and Vitess everything goes the general way, in transactions of dblock's own connections,
// and waiters poll: a name that changes is read every 5 to 100 ms (docs/tidb.md, docs/vitess.md).
//
// Named makes a client of the server's own named locks, GET_LOCK, which need no tables
// (internal/named). It is ErrConfig on TiDB and Vitess.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/tables"
)

// New keeps locks through the application's pool, opened with github.com/go-sql-driver/mysql. The
// pool remains the application's: dblock never closes it. Each client reserves one of its
// connections for heartbeats, one for its transactions, and one to listen for wake-ups once a
// request has waited. For its transactions, which hand over, queue and share, the client takes up
// to a quarter of the pool, at most 8 connections, and returns the unused ones after half a TTL.
// These connections have a wait_timeout of one TTL: if the process is stopped in the middle of a
// transaction, the name's row does not stay locked for longer.
//
// The pool must allow 3 connections: for heartbeats, for transactions, and for everything else.
// With 3 a client polls for its grants; listening takes 4. A transaction of the application has a
// connection of its own: with Guard, LockTx or UnlockTx, allow one more for each that is open at a
// time. A smaller pool is ErrConfig. Each client that shares a pool reserves its own connections: a
// client that would take the last one fails with ErrConfig at its first lock. Run migrate.Up or the
// files of package migrations first.
//
// A transaction of the client waits for a locked row for up to a second. In a pool below 8 all of
// them share one connection with the reads of Guard, LockTx and UnlockTx, which then wait as long.
//
// The tables are those of the pool's default database, or of Database. All connections are the
// pool's, whose connection attributes are in its DSN: a separate pool with
// connectionAttributes=program_name:dblock/orders makes dblock's connections recognisable in
// performance_schema.
//
// In a Galera cluster and in a group with several primaries, leases work with any number of writing
// nodes. LockTx, TryLockTx and Guard are ErrConfig there without SingleWriter.
func New(db *sql.DB, options ...Option) engines.Engine[*sql.Tx] {
	e := &engine{db: db, prepared: preparedOn(db), rowTimeout: rowTimeout, nap: longestNap, proof: proofTimeout}
	for _, option := range options {
		if option.set != nil {
			option.set(e)
		}
	}
	e.side = newSidePool(e)
	return *inside.Make[engines.Engine[*sql.Tx]](driver.Engine[*sql.Tx]{
		Backend: e, In: func(tx *sql.Tx) driver.Tx { return inTx{e, tx} },
	})
}

// Option is a setting of New.
type Option struct{ set func(e *engine) }

// SingleWriter states that all clients of these locks use the same node of a Galera cluster
// (wsrep_on=ON), or of a group with several primaries (group_replication_single_primary_mode=OFF),
// at any time. LockTx, TryLockTx and Guard rely on row locks, which hold on one node only: without
// SingleWriter they are ErrConfig on such a server. dblock cannot check the statement: if it is
// false, two transactions on two nodes can have the same lock at once. A fail-over to another node
// ends the open transactions. Galera also ends a transaction whose wait in LockTx ended with its
// context: the error is then that of a deadlock. On any other server SingleWriter changes nothing.
// Default: not stated.
func SingleWriter() Option { return Option{func(e *engine) { e.singleWriter = true }} }

// Database names the database of the server that has dblock's tables. migrate.Up with
// migrate.Locks.In makes the tables there. A name has letters, digits, "_", "$" and "-", at most 63
// bytes: any other is ErrConfig from dblock.New. Default: the default database of the connection
// with the client's first statement.
//
// Every statement of a client names its database, also those in the application's transactions: a
// later USE on a connection changes nothing.
//
// The tables of packages fence and optimistic stay in the transaction's default database.
func Database(name string) Option {
	in, err := tables.New(name)
	return Option{func(e *engine) {
		e.prepared.tables.State(in)
		if err != nil {
			e.misplaced = driver.Fail(driver.ErrConfig, fmt.Errorf("mysql.Database: %w", err))
		}
	}}
}

// AnyServer accepts every server. Without AnyServer, the first lock is ErrConfig on servers that
// speak MySQL's protocol but do not have its locks: OceanBase, on which dblock is not tested, and
// any other server whose row locks were seen to exclude nothing. Default: not accepted.
func AnyServer() Option { return Option{func(e *engine) { e.anyServer = true }} }

const (
	// rowTimeout is the time for which a statement retries a locked row: enough for any transaction
	// of dblock to end. A longer one is the application's, and no connection is kept to wait for
	// it.
	rowTimeout = 100 * time.Millisecond
	// firstPause and longestPause bound the wait between two attempts to lock a row.
	firstPause   = 500 * time.Microsecond
	longestPause = 8 * time.Millisecond
)

type engine struct {
	db       *sql.DB
	prepared *prepared
	side     *connpool.Pool[upkeep]
	// reads tells which data a plain SELECT of this pool sees: unknown, committed, dirty.
	reads atomic.Int32
	// info describes the server of the latest reserved connection; nil before the first.
	info         atomic.Pointer[serverInfo]
	rowTimeout   time.Duration
	nap          time.Duration // bounds the sleep of a listener's statement
	proof        time.Duration // bounds the wait of a listener for its own first KILL
	singleWriter bool
	anyServer    bool  // the application accepts every server
	misplaced    error // the error of an invalid option Database
	rowQueues    rowQueues
	obstructed   func() // tells a test that a row was found locked; nil otherwise
}

const (
	unknown int32 = iota
	committed
	dirty
)

func (e *engine) Connections() driver.Pool {
	s := e.db.Stats()
	return driver.Pool{InUse: s.InUse, Most: s.MaxOpenConnections, Kept: connpool.Kept(e.db)}
}

func (e *engine) HostFolder(bool) (path string, ok bool) { return "", true }

func (e *engine) Validate() error {
	if e.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	if e.misplaced != nil {
		return e.misplaced
	}
	return connpool.Enough(e.db.Stats().MaxOpenConnections, "SetMaxOpenConns(3)")
}

// queries runs statements one by one on any connection, each in its own transaction at the
// application's isolation level. They are the same on all servers, or MUST be called after meet, by
// lone or short of the server.
func (e *engine) queries() *mysqldb.Queries { return mysqldb.New(e.prepared) }

// lone runs a statement, or several that do not rely on each other. Where a statement needs a
// transaction around it, lone begins one.
func (e *engine) lone(ctx context.Context, work func(q *mysqldb.Queries) error) error {
	if err := e.meet(ctx, e.db); err != nil {
		return mysqlserver.Interpret(err)
	}
	return e.server().lone(ctx, e, work)
}

// transact runs work as one transaction at READ COMMITTED and commits it. Then it wakes the
// listeners of the sessions that work returns, on the same connection, since the pool may have no
// other.
func (e *engine) transact(ctx context.Context, work func(q *mysqldb.Queries) (wake []string, err error)) error {
	return e.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) { return work(mysqldb.New(db)) })
}

// transactWith is transact for work with statements that sqlc does not know.
func (e *engine) transactWith(ctx context.Context, work func(db mysqldb.DBTX) (wake []string, err error)) error {
	if e.side.Attended() {
		return e.transactApart(ctx, work)
	}
	err := e.meet(ctx, e.db)
	if err == nil {
		err = e.prepared.catchUp(ctx)
	}
	if err != nil {
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
	defer e.server().giveBack(conn)
	if err == nil {
		e.wakeUp(ctx, conn, wake)
	}
	return mysqlserver.Interpret(err)
}

// transactApart runs work on a connection of the side pool. If the process is stopped between two
// statements, the transaction keeps the name's row locked; on this connection the server ends it
// after a TTL of silence.
func (e *engine) transactApart(ctx context.Context, work func(db mysqldb.DBTX) (wake []string, err error)) error {
	return mysqlserver.Interpret(e.side.Do(ctx, func(ctx context.Context, u upkeep) error {
		return u.transactWith(ctx, work)
	}))
}

// errUnanswered means that the server has not acknowledged the end of a transaction. The connection
// must be discarded.
var errUnanswered = errors.New("the end of the transaction was not answered")

// finish ends a transaction, and waits for the answer only until ctx ends: database/sql takes no
// context there.
func finish(ctx context.Context, end func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- end() }() // ends when the server answers or the network fails
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return driver.Fail(errUnanswered, ctx.Err())
	}
}

// transactOn runs a transaction on a connection. An error of work, or the end of ctx, rolls it
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
	// ctx ended, and database/sql has rolled the transaction back
	if errors.Is(err, sql.ErrTxDone) {
		return driver.Fail(driver.ErrUnavailable, driver.Join(ctx.Err(), err))
	}
	return err
}
