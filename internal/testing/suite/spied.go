package suite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// spy calls at before each statement of the transaction that was begun under it, counted from 1.
type spy struct {
	at   func(nth int)
	n    atomic.Int32
	conn *spiedConn               // of database/sql: that of the transaction
	tx   atomic.Pointer[pgx.Conn] // of pgx, once the transaction has begun
}

type spyKey struct{}

func (w *spy) under(ctx context.Context) context.Context {
	return context.WithValue(ctx, spyKey{}, w)
}

func (w *spy) statement() {
	if w != nil {
		w.at(int(w.n.Add(1)))
	}
}

// tracer spies on the statements of pgx. A batch is one.
type tracer struct{}

func (tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return spiedOn(ctx, conn)
}

func (tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return spiedOn(ctx, conn)
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func spiedOn(ctx context.Context, conn *pgx.Conn) context.Context {
	if w, _ := ctx.Value(spyKey{}).(*spy); w != nil && w.tx.Load() == conn {
		w.statement()
	}
	return ctx
}

// spied opens connections of another driver whose transactions can be spied on. Beside that they
// do what the driver's own do.
type spied struct {
	driver driver.Driver
	dsn    string
}

func (w spied) Driver() driver.Driver { return w.driver }

func (w spied) Connect(context.Context) (driver.Conn, error) {
	conn, err := w.driver.Open(w.dsn)
	if err != nil {
		return nil, err
	}
	return &spiedConn{Conn: conn}, nil
}

type spiedConn struct {
	driver.Conn
	spy    *spy // of the transaction that is open
	closed atomic.Bool
	lent   atomic.Bool // again, by the pool, since that transaction has begun
}

func (c *spiedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// Raw is for what looks below wrappers.
func (c *spiedConn) Raw() driver.Conn { return c.Conn }

func (c *spiedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	if c.spy, _ = ctx.Value(spyKey{}).(*spy); c.spy != nil {
		c.spy.conn = c
		c.lent.Store(false)
	}
	return spiedTx{tx, c}, nil
}

type spiedTx struct {
	driver.Tx
	conn *spiedConn
}

func (t spiedTx) Commit() error   { t.conn.spy = nil; return t.Tx.Commit() }
func (t spiedTx) Rollback() error { t.conn.spy = nil; return t.Tx.Rollback() }

func (c *spiedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.spy.statement()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
}

func (c *spiedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.spy.statement()
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

func (c *spiedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return spiedStmt{stmt, c}, nil
}

func (c *spiedConn) ResetSession(ctx context.Context) error {
	c.lent.Store(true)
	if conn, ok := c.Conn.(driver.SessionResetter); ok {
		return conn.ResetSession(ctx)
	}
	return nil
}

func (c *spiedConn) IsValid() bool {
	conn, ok := c.Conn.(driver.Validator)
	return !ok || conn.IsValid()
}

func (c *spiedConn) CheckNamedValue(v *driver.NamedValue) error {
	if conn, ok := c.Conn.(driver.NamedValueChecker); ok {
		return conn.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *spiedConn) Ping(ctx context.Context) error {
	if conn, ok := c.Conn.(driver.Pinger); ok {
		return conn.Ping(ctx)
	}
	return nil
}

type spiedStmt struct {
	driver.Stmt
	conn *spiedConn
}

func (s spiedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.conn.spy.statement()
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s spiedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.conn.spy.statement()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s spiedStmt) CheckNamedValue(v *driver.NamedValue) error {
	if stmt, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return stmt.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

// openSpied opens the pool of a DSN anew.
func openSpied(pool *sql.DB, dsn string) *sql.DB { return sql.OpenDB(spied{pool.Driver(), dsn}) }
