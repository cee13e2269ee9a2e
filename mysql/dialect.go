package mysql

import (
	"context"
	"database/sql"
	"strings"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/foreign"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

// dialect is a kind of server: innodb.go, mariadb.go, tidb.go, vitess.go.
type dialect interface {
	facts() *facts
	// examine refuses settings of a connection or of a database ("": the default one) with which
	// this kind of server alone would lose locks.
	examine(ctx context.Context, on *sql.Conn, database string) error
	// lone runs one statement, or several that are independent of each other.
	lone(ctx context.Context, on runner, work func(q *mysqldb.Queries) error) error
	// short runs ops in fewer round trips than the general way of run.go, or does nothing: done is
	// false.
	short(ctx context.Context, e *engine, ops []protocol.Op) (results []protocol.Result, done bool, err error)
	// sleepLock takes, on the connection of the heartbeats, the named lock for which a listener
	// waits, and returns its name. "": a listener sleeps instead.
	sleepLock(ctx context.Context, on *sql.Conn) (string, error)
	// giveBack returns a connection to its pool after a transaction at READ COMMITTED.
	giveBack(conn *sql.Conn)
	// traceRow is called after the application's transaction has locked a name's row.
	traceRow(quiet context.Context, t inTx, name string, row mysqldb.AwaitRowRow) error
	// traceGuard is called after the application's transaction has locked a guard's row.
	traceGuard(quiet context.Context, t inTx, h protocol.Held, attempt string) error
}

// facts are the statements and the abilities in which the servers differ.
type facts struct {
	// texts are the statements in the server's own SQL. Those of byView read the clock from the
	// view dblock_clock, which tests replace.
	texts, byView mysqldb.Texts
	// resets is the statement that sets the session's sql_select_limit and timestamp back to their
	// defaults: others cut lists short, or stop the clock.
	resets string
	// open is the variable that is 0 outside of a transaction; "": the server has none.
	open string
	// undoes is the variable that makes a refused NOWAIT roll back the whole transaction; "": the
	// server has none.
	undoes string
	// deaf is the reason why a listener cannot be woken; nil: it can.
	deaf error
	// noSkipLocked: the server has no SKIP LOCKED. The engine locks one row per statement, NOWAIT.
	noSkipLocked bool
	// limitEndsAll: the limit of a wait also ends a slow statement that waits for no row.
	limitEndsAll bool
	// lists: the server has JSON_TABLE.
	lists bool
	// endless: a sql_select_limit of 0 means no limit.
	endless bool
	// pairs are the row locks that dblock uses. tryLocks checks that they exclude each other.
	pairs []pair
}

// rows returns how many rows, up to limit, the engine locks by one statement that does not wait.
func (f facts) rows(limit int) int {
	if f.noSkipLocked {
		return 1
	}
	return max(1, min(limit, maxList))
}

const resetLimit = "SET SESSION sql_select_limit = 18446744073709551615, timestamp = DEFAULT"

// runner runs statements: an engine, or one connection of it.
type runner interface {
	queries() *mysqldb.Queries
	transact(ctx context.Context, work func(q *mysqldb.Queries) (wake []string, err error)) error
}

// common has the methods that most servers share.
type common struct{ is facts }

func (c *common) facts() *facts { return &c.is }

func (*common) examine(context.Context, *sql.Conn, string) error { return nil }

func (*common) sleepLock(context.Context, *sql.Conn) (string, error) { return "", nil }

func (*common) giveBack(conn *sql.Conn) { _ = conn.Close() }

func (*common) traceRow(context.Context, inTx, string, mysqldb.AwaitRowRow) error { return nil }

func (*common) traceGuard(context.Context, inTx, protocol.Held, string) error { return nil }

// transacting is a server on which each statement runs in a transaction of its own: that has the
// clock, and bounds the wait for a row. Only the general way of run.go works there.
type transacting struct{ common }

func (*transacting) lone(ctx context.Context, on runner, work func(q *mysqldb.Queries) error) error {
	return on.transact(ctx, func(q *mysqldb.Queries) ([]string, error) { return nil, work(q) })
}

func (*transacting) short(context.Context, *engine, []protocol.Op) ([]protocol.Result, bool, error) {
	return nil, false, nil
}

// dialectOf returns the dialect of a server, and an error if its locks may not exclude.
func dialectOf(version string) (dialect, error) {
	switch {
	case strings.Contains(version, "TiDB"):
		return inTiDB, nil
	case strings.Contains(version, "Vitess"):
		return inVitess, nil
	case strings.Contains(version, "MariaDB"):
		return inMariaDB, nil
	}
	return inMySQL, foreign.Refuse(version)
}

// server is the server that an engine is connected to.
type server struct {
	dialect
	version string // of VERSION()
}

// server returns the engine's server. MUST be called after meet.
func (e *engine) server() *server { return e.prepared.server.Load() }

// meet reads, once, the dialect of the server and the database of the tables. It refuses a server
// whose locks would not exclude. It runs before all other statements: such a server may not answer
// them.
func (e *engine) meet(ctx context.Context, on querier) error {
	if err := e.learnDialect(ctx, on); err != nil {
		return err
	}
	return e.prepared.tables.Find(func() (*tables.In, error) { return look(ctx, on) })
}

// look returns the default database of a connection, if it has the tables. It asks by their full
// name: the second statement may run on another connection of a pool.
func look(ctx context.Context, on querier) (*tables.In, error) {
	var db sql.NullString
	if err := on.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&db); err != nil {
		return nil, err
	}
	in, err := tables.Found(db.String)
	if err != nil {
		return nil, driver.Fail(driver.ErrConfig, err)
	}
	err = on.QueryRowContext(ctx, in.MySQL("SELECT COUNT(*) FROM dblock_schema")).Scan(new(int))
	if transaction.Denied(err) { // a later statement tells which right is missing
		err = nil
	}
	return in, err
}

func (e *engine) learnDialect(ctx context.Context, on querier) error {
	if e.server() != nil {
		return nil
	}
	var version string
	if err := on.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	d, err := dialectOf(version)
	if err != nil && !e.anyServer {
		return err
	}
	e.prepared.server.Store(&server{d, version})
	return nil
}
