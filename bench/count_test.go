package bench

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// counter counts the statements that a pool's connections send, and those which dblock opens with
// the pool's configuration, by the name that sqlc gave them. On PostgreSQL it is a tracer of pgx;
// elsewhere the pool's driver is wrapped. What the drivers send on their own account, to prepare or
// to reset, is not counted.
type counter struct {
	mu       sync.Mutex // protects what follows
	byName   map[string]int
	timeouts int // errors by which PostgreSQL says that a row was locked for too long
}

func newCounter() *counter { return &counter{byName: map[string]int{}} }

func (c *counter) saw(text string) {
	name, found := strings.CutPrefix(text, "-- name: ")
	if found {
		name, _, _ = strings.Cut(name, " ")
	} else {
		name = text[:min(len(text), 24)]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName[name]++
}

// reset forgets what was counted, and returns it: in all, without the heartbeats themselves, and in
// words.
func (c *counter) reset() (all, beyondHeartbeat int, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		n := c.byName[name]
		all += n
		if name != "Heartbeat" {
			beyondHeartbeat += n
		}
		list = append(list, fmt.Sprintf("%d %s", n, name))
	}
	clear(c.byName)
	return all, beyondHeartbeat, strings.Join(list, ", ")
}

func (c *counter) lockTimeouts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeouts
}

func (c *counter) failed(err error) {
	if e, is := errors.AsType[*pgconn.PgError](err); is && e.Code == "55P03" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.timeouts++
	}
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.saw(data.SQL)
	return ctx
}

func (c *counter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	c.failed(data.Err)
}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.saw(data.SQL)
}

func (c *counter) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	c.failed(data.Err)
}

// counted opens connections that count.
type counted struct {
	driver driver.Driver
	dsn    string
	count  *counter
}

func (c counted) Driver() driver.Driver { return c.driver }

func (c counted) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c.count}, nil
}

// countedConn forwards everything that database/sql asks a connection for. What the connection
// below cannot do is answered as if this one could not either.
type countedConn struct {
	driver.Conn
	count *counter
}

func (c *countedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &countedStmt{stmt, text, c.count}, nil
}

func (c *countedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.count.saw("BEGIN")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return countedTx{tx, c.count}, err
}

func (c *countedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
	if !errors.Is(err, driver.ErrSkip) {
		c.count.saw(text)
	}
	return result, err
}

func (c *countedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
	if !errors.Is(err, driver.ErrSkip) {
		c.count.saw(text)
	}
	return rows, err
}

func (c *countedConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		c.count.saw("PING")
		return p.Ping(ctx)
	}
	return nil
}

func (c *countedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *countedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *countedConn) CheckNamedValue(v *driver.NamedValue) error { return check(c.Conn, v) }

func check(below any, v *driver.NamedValue) error {
	if n, ok := below.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type countedTx struct {
	driver.Tx
	count *counter
}

func (t countedTx) Commit() error {
	t.count.saw("COMMIT")
	return t.Tx.Commit()
}

type countedStmt struct {
	driver.Stmt
	text  string
	count *counter
}

func (s *countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.count.saw(s.text)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.count.saw(s.text)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s *countedStmt) CheckNamedValue(v *driver.NamedValue) error { return check(s.Stmt, v) }
