package sqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
)

// spy opens connections that tell of each statement before they run it.
type spy struct {
	driver sqldriver.Driver
	dsn    string
	before func(text string)
}

func (s *spy) Driver() sqldriver.Driver { return s.driver }

func (s *spy) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := s.driver.Open(s.dsn)
	return &spied{conn, s}, err
}

type spied struct {
	sqldriver.Conn
	spy *spy
}

func (c *spied) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.spy.before(text)
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
}

func (c *spied) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.spy.before(text)
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
}

func (c *spied) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c.Conn.(sqldriver.ConnBeginTx).BeginTx(ctx, opts)
}

// spied is a fixture on the same file, of which the test sees each statement before it runs.
func (f *fixture) spied(before func(text string)) *fixture {
	f.t.Helper()
	pool := sql.OpenDB(&spy{f.pool.Driver(), "file:" + f.path + "?" + unsynced, before})
	f.t.Cleanup(func() { _ = pool.Close() })
	return on(f.t, pool, f.path)
}
