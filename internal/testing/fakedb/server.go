package fakedb

import (
	"context"
	"database/sql/driver"
	"io"
)

// Server is a server below a pool of database/sql, which answers each statement as a test says.
type Server struct {
	Query      func(on *Session, text string) ([]driver.Value, error) // the only row; nil: none
	Exec       func(on *Session, text string) error                   // nil: it succeeds
	End        func(on *Session)                                      // of a transaction; nil: nothing
	Unprepared bool                                                   // no statement can be prepared
	Closed     int                                                    // connections
}

// Connect makes a connection.
func (s *Server) Connect(context.Context) (driver.Conn, error) { return &Session{s}, nil }

// Driver is none.
func (s *Server) Driver() driver.Driver { return nil }

// Session is a connection.
type Session struct{ server *Server }

// Close counts.
func (c *Session) Close() error { c.server.Closed++; return nil }

// Begin begins a transaction.
func (c *Session) Begin() (driver.Tx, error) { return c, nil }

// BeginTx is Begin at any level.
func (c *Session) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// Commit ends a transaction.
func (c *Session) Commit() error { return c.Rollback() }

// Rollback ends a transaction.
func (c *Session) Rollback() error {
	if c.server.End != nil {
		c.server.End(c)
	}
	return nil
}

// Prepare keeps the text.
func (c *Session) Prepare(text string) (driver.Stmt, error) {
	if c.server.Unprepared {
		return nil, driver.ErrSkip
	}
	return prepared{c, text}, nil
}

// QueryContext answers with the row.
func (c *Session) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	row, err := c.server.Query(c, text)
	return &rows{row: row}, err
}

// ExecContext answers that a row was changed.
func (c *Session) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	if c.server.Exec == nil {
		return driver.RowsAffected(1), nil
	}
	return driver.RowsAffected(1), c.server.Exec(c, text)
}

type prepared struct {
	on   *Session
	text string
}

func (prepared) Close() error  { return nil }
func (prepared) NumInput() int { return -1 }

func (p prepared) Exec([]driver.Value) (driver.Result, error) {
	return p.on.ExecContext(context.Background(), p.text, nil)
}

func (p prepared) Query([]driver.Value) (driver.Rows, error) {
	return p.on.QueryContext(context.Background(), p.text, nil)
}

type rows struct {
	row  []driver.Value
	read bool
}

func (r *rows) Columns() []string { return make([]string, len(r.row)) }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(into []driver.Value) error {
	if r.read || r.row == nil {
		return io.EOF
	}
	r.read = true
	copy(into, r.row)
	return nil
}
