package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
)

// fake is a driver without a database. It knows whether its one connection is inside a transaction,
// and answers every query with the row 0.
type fake struct {
	inside  bool
	closed  int
	refused string // the statement that fails
	refusal error
	ran     []string
}

// onFake is an engine on a fake, which has found its tables.
func onFake(t *testing.T) (*fake, *engine) {
	t.Helper()
	f := &fake{refusal: errRefused}
	pool := sql.OpenDB(f)
	t.Cleanup(func() { _ = pool.Close() })
	e := New(pool).Backend.(*engine)
	e.db.file.Store(&file{})
	e.db.fit.Store(true)
	return f, e
}

var errRefused = errors.New("refused")

func (f *fake) Connect(context.Context) (sqldriver.Conn, error) { return fakeConn{f}, nil }
func (f *fake) Driver() sqldriver.Driver                        { return nil }

type fakeConn struct{ *fake }

func (c fakeConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c fakeConn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c fakeConn) Close() error                           { c.closed++; return nil }

func (c fakeConn) ExecContext(_ context.Context, text string, _ []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.ran = append(c.ran, text)
	begins := strings.HasPrefix(text, "BEGIN")
	switch ends := text == "COMMIT" || text == "ROLLBACK"; {
	case text == c.refused:
		return nil, c.refusal
	case begins && c.inside, ends && !c.inside:
		return nil, errors.New(text + " in the wrong place")
	case begins || ends:
		c.inside = begins
	}
	return sqldriver.RowsAffected(0), nil
}

func (c fakeConn) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return new(oneRow), nil
}

// oneRow is the row 0.
type oneRow struct{ read bool }

func (*oneRow) Columns() []string { return []string{"n"} }
func (*oneRow) Close() error      { return nil }

func (r *oneRow) Next(values []sqldriver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, values[0] = true, int64(0)
	return nil
}
