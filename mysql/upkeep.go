package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// idleTimeout is the time after which the server ends a silent reserved connection that is used now
// and then.
const idleTimeout = time.Hour

// reserve takes a connection out of the application's pool for good. Its settings are changed, so
// discard must end it. The server ends the connection after idle without a statement.
func (e *engine) reserve(ctx context.Context, idle time.Duration, use connpool.Use) (*sql.Conn, error) {
	conn, err := e.db.Conn(ctx)
	if err != nil {
		return nil, e.exhausted(ctx, err)
	}
	err = e.setUp(ctx, conn)
	if err == nil {
		_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int64(math.Ceil(idle.Seconds()))))
	}
	if err != nil {
		mysqlserver.Discard(conn)
		return nil, err
	}
	connpool.Keep(e.db, conn, use)
	return conn, nil
}

// discard ends a reserved connection.
func (e *engine) discard(conn *sql.Conn) {
	defer connpool.Leave(e.db, conn)
	mysqlserver.Discard(conn)
}

func (e *engine) setUp(ctx context.Context, conn *sql.Conn) error {
	if err := e.learnDialect(ctx, conn); err != nil {
		return err
	}
	if err := unset(ctx, conn, e.server().facts().resets); err != nil {
		return err
	}
	if err := e.examine(ctx, conn); err != nil {
		return err
	}
	if err := e.learn(ctx, conn); err != nil {
		return err
	}
	info, err := e.askServer(ctx, conn)
	if err != nil {
		return err
	}
	e.info.Store(info)
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	// The application's limit on statements is not meant for dblock: MySQL's variable, and
	// MariaDB's.
	limit, err := variable(ctx, conn, "max_execution_time", "max_statement_time")
	if err != nil || limit == "" {
		return err
	}
	for _, name := range []string{"max_execution_time", "max_statement_time"} {
		if _, err := conn.ExecContext(ctx, "SET SESSION "+name+" = 0"); err != nil &&
			mysqlserver.Number(err) != mysqlserver.UnknownVariable {
			return err
		}
	}
	return nil
}

// upkeep is a reserved connection: that of a session's heartbeats, or one of the side pool.
type upkeep struct {
	conn      *sql.Conn
	db        *prepared // on conn
	q         *mysqldb.Queries
	of        *engine
	sleepLock string // the lock that it holds; "": none
	deaf      error  // the reason why no listener can wait beside it
}

func (e *engine) upkeepOn(conn *sql.Conn) upkeep {
	db := e.prepared.onConn(conn)
	return upkeep{conn: conn, db: db, q: mysqldb.New(db), of: e}
}

func (e *engine) Upkeep(ctx context.Context, _ string) (driver.Upkeep, error) {
	conn, err := e.reserve(ctx, idleTimeout, connpool.Heartbeats)
	if err != nil {
		return nil, mysqlserver.Interpret(err)
	}
	e.side.Warm()
	u := e.upkeepOn(conn)
	u.sleepLock, u.deaf = e.server().sleepLock(ctx, conn)
	return u, nil
}

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.of.beats(ctx, u.lone, session, ttl)
}

func (e *engine) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return e.beats(ctx, e.lone, session, ttl)
}

// beats is Heartbeat with statements that lone runs.
func (e *engine) beats(
	ctx context.Context, lone func(context.Context, func(q *mysqldb.Queries) error) error, session string,
	ttl time.Duration,
) (alive bool, err error) {
	var tables driver.Schema
	err = lone(ctx, func(q *mysqldb.Queries) error {
		expiresAt, err := q.Heartbeat(ctx, mysqldb.HeartbeatParams{
			Session: session, Ttl: ttl.Microseconds(), Build: driver.SchemaVersion,
		})
		if alive = expiresAt != 0; err == nil && !alive {
			tables, err = e.schema(ctx, q)
		}
		return err
	})
	if err != nil || alive {
		return alive && err == nil, err
	}
	return false, tables.Check()
}

func (u upkeep) Claims(ctx context.Context, session string, _ []driver.Claim) ([]driver.Claim, error) {
	return claims(ctx, u.lone, session, driver.All)
}

func (u upkeep) queries() *mysqldb.Queries { return u.q }

// lone is engine.lone on this connection.
func (u upkeep) lone(ctx context.Context, work func(q *mysqldb.Queries) error) error {
	return u.of.server().lone(ctx, u, work)
}

// transact is transactWith for work that may be repeated, whatever became of it.
func (u upkeep) transact(ctx context.Context, work func(q *mysqldb.Queries) (wake []string, err error)) error {
	err := u.transactWith(ctx, func(db mysqldb.DBTX) ([]string, error) { return work(mysqldb.New(db)) })
	if sent := new(connpool.Sent); errors.As(err, sent) {
		return sent.Err
	}
	return err
}

func (u upkeep) Close() error {
	u.of.discard(u.conn)
	return nil
}

// transactWith runs work as one transaction, and then wakes the sessions that work returns, as
// engine.transactWith does.
func (u upkeep) transactWith(ctx context.Context, work func(db mysqldb.DBTX) (wake []string, err error)) error {
	// at READ COMMITTED, set by reserve
	if _, err := u.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return mysqlserver.Interpret(err)
	}
	wake, err := work(u.db)
	if err == nil {
		_, err = u.conn.ExecContext(ctx, "COMMIT")
		err = mysqlserver.AtCommit(err)
	}
	if err == nil {
		u.of.wakeUp(ctx, u.conn, wake)
		return nil
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), mysqlserver.CloseTimeout)
	defer cancel()
	err = mysqlserver.Interpret(err)
	_, undone := u.conn.ExecContext(within, "ROLLBACK")
	// the connection is not kept; if ctx has ended, it is broken anyway
	if undone != nil && ctx.Err() == nil {
		err = driver.Join(err, driver.Fail(driver.ErrUnavailable, undone))
	}
	return connpool.Sent{Err: err}
}
