// Package swallow answers statements without running them: "OK, 0 rows", or a list without rows.
// MariaDB answers so where a KILL QUERY or max_statement_time has cut a statement short; a trigger
// or a rule can make any server do it. Tests say which statement it is.
package swallow

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"sync"
)

// Statements are those of a pool. The zero value swallows none.
type Statements struct {
	mu        sync.Mutex
	choose    func(text string, nth int) bool
	seen      int
	swallowed string
}

// Arm has the first statement swallowed that choose picks. nth is its number among the statements
// from now on, from 0. Statements without a name of sqlc's are never asked about.
func (s *Statements) Arm(choose func(text string, nth int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose, s.seen, s.swallowed = choose, 0, ""
}

// Disarm has no statement swallowed any more, and returns the text of the one that was, "" where
// there was none.
func (s *Statements) Disarm() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = nil
	return s.swallowed
}

func (s *Statements) swallows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.choose == nil || s.swallowed != "" || !strings.Contains(text, "-- name: ") {
		return false
	}
	s.seen++
	if s.choose(text, s.seen-1) {
		s.swallowed = text
	}
	return s.swallowed != ""
}

// Pool is a pool of connections whose statements may be swallowed.
func (s *Statements) Pool(to driver.Connector) *sql.DB { return sql.OpenDB(connector{to, s}) }

// Connector makes connections of a driver that has no connectors of its own.
func Connector(d driver.Driver, dsn string) driver.Connector { return dsnConnector{d, dsn} }

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type connector struct {
	driver.Connector
	s *Statements
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	to, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{to, c.s}, nil
}

type conn struct {
	driver.Conn
	s *Statements
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	to, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &stmt{to, text, c.s}, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	on, can := c.Conn.(driver.ExecerContext)
	switch {
	case !can:
		return nil, driver.ErrSkip
	case c.s.swallows(text):
		return nothing{}, nil
	}
	return on.ExecContext(ctx, text, args)
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	on, can := c.Conn.(driver.QueryerContext)
	switch {
	case !can:
		return nil, driver.ErrSkip
	case c.s.swallows(text):
		return nothing{}, nil
	}
	return on.QueryContext(ctx, text, args)
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error { return check(c.Conn, v) }

func (c *conn) ResetSession(ctx context.Context) error {
	if to, can := c.Conn.(driver.SessionResetter); can {
		return to.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	to, can := c.Conn.(driver.Validator)
	return !can || to.IsValid()
}

// check converts an argument as the driver does.
func check(by any, v *driver.NamedValue) error {
	if to, can := by.(driver.NamedValueChecker); can {
		return to.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type stmt struct {
	driver.Stmt
	text string
	s    *Statements
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.s.swallows(s.text) {
		return nothing{}, nil
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.s.swallows(s.text) {
		return nothing{}, nil
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error { return check(s.Stmt, v) }

// nothing is the answer of a statement that was not run.
type nothing struct{}

func (nothing) LastInsertId() (int64, error) { return 0, nil }
func (nothing) RowsAffected() (int64, error) { return 0, nil }
func (nothing) Columns() []string            { return nil }
func (nothing) Close() error                 { return nil }
func (nothing) Next([]driver.Value) error    { return io.EOF }
