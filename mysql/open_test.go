package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// scriptedConn is a connection of a server that has a version. It notes the statements of its
// transaction, and refuses those that begin with a text of fails.
type scriptedConn struct {
	version string
	open    int64 // what the variable of the server says
	fails   map[string]uint16
	sent    []string
}

func (c *scriptedConn) Connect(context.Context) (sqldriver.Conn, error) { return c, nil }
func (c *scriptedConn) Driver() sqldriver.Driver                        { return nil }
func (c *scriptedConn) Close() error                                    { return nil }
func (c *scriptedConn) Begin() (sqldriver.Tx, error)                    { return c, nil }
func (c *scriptedConn) Commit() error                                   { return nil }
func (c *scriptedConn) Rollback() error                                 { return nil }
func (c *scriptedConn) Prepare(string) (sqldriver.Stmt, error)          { return nil, sqldriver.ErrSkip }

func (c *scriptedConn) answer(text string) error {
	c.sent = append(c.sent, text)
	for of, number := range c.fails {
		if strings.Contains(text, of) {
			return &mysql.MySQLError{Number: number}
		}
	}
	return nil
}

func (c *scriptedConn) ExecContext(
	_ context.Context, text string, _ []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	return sqldriver.RowsAffected(0), c.answer(text)
}

func (c *scriptedConn) QueryContext(
	_ context.Context, text string, _ []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	if err := c.answer(text); err != nil {
		return nil, err
	}
	if strings.Contains(text, "VERSION()") {
		return &scriptedRow{c.version}, nil
	}
	return &scriptedRow{c.open}, nil
}

// scriptedRow is a row of one value, which is nil once it was read.
type scriptedRow struct{ value sqldriver.Value }

func (*scriptedRow) Columns() []string { return []string{""} }
func (*scriptedRow) Close() error      { return nil }

func (r *scriptedRow) Next(into []sqldriver.Value) error {
	if r.value == nil {
		return io.EOF
	}
	into[0], r.value = r.value, nil
	return nil
}

// stepsOn runs each step in a transaction of the connection. On another one the step reads nothing.
func stepsOn(t *testing.T, c *scriptedConn) map[string]func() error {
	pool := sql.OpenDB(c)
	t.Cleanup(func() { _ = pool.Close() })
	e := New(pool, Database("d")).Backend.(*engine)
	e.info.Store(&serverInfo{})
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	in, held := inTx{e, tx}, protocol.Held{Name: "n", Session: "s", Token: 1}
	beside := func(context.Context, func(context.Context, driver.Upkeep) error) error { return nil }
	lock := func(wait bool) func() error {
		return func() error {
			_, locked, err := in.Lock(t.Context(), "n", nil, wait, beside)
			if err == nil && locked {
				t.Error("a name that is not free is locked")
			}
			return err
		}
	}
	return map[string]func() error{
		"LockTx": lock(true), "TryLockTx": lock(false),
		"Guard": func() error { return in.Guard(t.Context(), held, beside) },
		"UnlockTx": func() error {
			return in.Release(t.Context(), held, protocol.Detachment{}, beside)
		},
	}
}

// Broken by a step that locks or writes before the proof that its transaction is open, or without
// it.
func TestATransactionThatIsNotOpenIsSentNothingButTheProof(t *testing.T) {
	const savepoint, released = "SAVEPOINT dblock_open", "RELEASE SAVEPOINT dblock_open"
	for version, proof := range map[string][]string{
		"9.7.0":              {savepoint, released},
		"8.0.30-Vitess":      {savepoint, released},
		"11.8.9-MariaDB":     {"SELECT @@in_transaction <> 0"},
		"8.0.11-TiDB-v8.5.0": {"SELECT @@tidb_current_ts <> 0"},
	} {
		c := &scriptedConn{version: version, fails: map[string]uint16{released: 1305}}
		first := []string{"SELECT VERSION()"}
		for what, step := range stepsOn(t, c) {
			assert.ErrorIs(t, step(), driver.ErrTxDone, what, "on", version)
			if want := slices.Concat(first, proof); !slices.Equal(c.sent, want) {
				t.Errorf("%s on %s: sent %q, want %q", what, version, c.sent, want)
			}
			first, c.sent = nil, nil
		}
	}
}

// Broken by a statement after a deadlock: it would commit by itself.
func TestADeadlockIsTheLastThingThatATransactionIsSent(t *testing.T) {
	for _, number := range []uint16{1213, 1020} {
		c := &scriptedConn{version: "11.8.9-MariaDB", open: 1, fails: map[string]uint16{".dblock_": number}}
		step := stepsOn(t, c)["UnlockTx"]
		err := step()
		assert.ErrorIs(t, err, driver.ErrRetry)
		assert.ErrorIs(t, err, driver.ErrRolledBack)
		if n := len(c.sent); n != 3 || !strings.Contains(c.sent[n-1], "FOR UPDATE") {
			t.Errorf("sent %q, want nothing after the row lock", c.sent)
		}
	}
}
