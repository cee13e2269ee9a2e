package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// claimant is a server that says it is MySQL, MariaDB or TiDB, and locks rows as it likes.
type claimant struct {
	version string
	lies    int  // the try, in their order, that a lock does not keep out; -1: none
	stale   bool // its connections read a past in which dblock's tables were not made yet

	mu     sync.Mutex // guards the following
	locked int        // transactions that have a row
	tries  int        // those of a transaction while another one has the row
	clock  int
}

func (c *claimant) Connect(context.Context) (sqldriver.Conn, error) { return &claimConn{of: c}, nil }
func (c *claimant) Driver() sqldriver.Driver                        { return nil }

// claimConn is one of its connections.
type claimConn struct {
	of    *claimant
	holds bool
}

func (c *claimConn) Close() error { return nil }

func (c *claimConn) Begin() (sqldriver.Tx, error) { return c, nil }

func (c *claimConn) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return c, nil
}

func (c *claimConn) Commit() error { return c.Rollback() }

func (c *claimConn) Rollback() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.holds {
		c.holds = false
		c.of.locked--
	}
	return nil
}

func (c *claimConn) Prepare(text string) (sqldriver.Stmt, error) { return claimStmt{c, text}, nil }

func (c *claimConn) QueryContext(
	_ context.Context, text string, _ []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	return claimStmt{c, text}.Query(nil)
}

func (c *claimConn) ExecContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Result, error) {
	return sqldriver.RowsAffected(1), nil
}

type claimStmt struct {
	on   *claimConn
	text string
}

func (claimStmt) Close() error  { return nil }
func (claimStmt) NumInput() int { return -1 }

func (claimStmt) Exec([]sqldriver.Value) (sqldriver.Result, error) {
	return sqldriver.RowsAffected(1), nil
}

func (s claimStmt) Query([]sqldriver.Value) (sqldriver.Rows, error) {
	c := s.on.of
	c.mu.Lock()
	defer c.mu.Unlock()
	row := func(values ...sqldriver.Value) (sqldriver.Rows, error) { return &claimRows{values: values}, nil }
	c.clock++
	switch {
	case strings.Contains(s.text, "VERSION()"):
		return row(c.version)
	case strings.Contains(s.text, "@@autocommit"):
		return row(true, true, "NO_CHAIN", "", int64(1)<<40, "utf8mb4", "utf8mb4", "utf8mb4", fmt.Sprint(c.clock))
	case strings.Contains(s.text, "@@timestamp"):
		return row(fmt.Sprint(c.clock))
	case strings.Contains(s.text, "@@tidb_txn_mode") && c.stale:
		return row("pessimistic", "OFF", "", "-5", "0")
	case strings.Contains(s.text, "dblock_") && c.stale:
		return nil, &gomysql.MySQLError{Number: 1146, Message: "there is no such table"}
	case strings.Contains(s.text, "@@tidb_txn_mode"):
		return row("pessimistic", "OFF", "", "0", "0")
	case s.text == "SELECT DATABASE()":
		return row("app")
	case strings.HasPrefix(s.text, "SELECT COUNT(*) FROM `app`.dblock_schema"):
		return row(int64(1))
	case strings.HasSuffix(s.text, "WHERE id = 's' "): // it locks nothing
		return row("s")
	case strings.Contains(s.text, "SELECT id FROM `app`.dblock_sessions"):
		if c.locked > 0 {
			c.tries++
		}
		if c.locked == 0 || c.tries-1 == c.lies {
			c.locked++
			s.on.holds = true
			return row("s")
		}
		return nil, &gomysql.MySQLError{Number: 3572, Message: "NOWAIT is set"}
	}
	return &claimRows{done: true}, nil
}

// claimRows is one row, or none.
type claimRows struct {
	values []sqldriver.Value
	done   bool
}

func (r *claimRows) Columns() []string { return make([]string, len(r.values)) }
func (r *claimRows) Close() error      { return nil }

func (r *claimRows) Next(into []sqldriver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	copy(into, r.values)
	return nil
}

func TestAServerWhoseLocksExcludeNothingIsRefused(t *testing.T) {
	for of, tries := range map[string]int{"8.4.6": 4, "11.8.2-MariaDB": 4, "8.0.11-TiDB-v8.5.6": 1, "8.4.6-Vitess": 4} {
		for lies := -1; lies < tries; lies++ {
			c := &claimant{version: fmt.Sprintf("%s-lies-%d", of, lies), lies: lies}
			pool := sql.OpenDB(c)
			defer pool.Close()
			open := func(options ...mysql.Option) error {
				return mysql.New(pool, options...).OpenSession(t.Context(), driver.Session{ID: "s", TTL: time.Minute})
			}
			if lies < 0 {
				require.NoError(t, open(), of)
				require.Equal(t, c.tries, tries, of)
				require.Equal(t, pool.Stats().OpenConnections, 1, of) // the second one is closed
				continue
			}
			err := open()
			require.ErrorIs(t, err, driver.ErrConfig, c.version)
			if !strings.Contains(err.Error(), "exclude nothing") || !strings.Contains(err.Error(), c.version) {
				t.Errorf("it says %q", err)
			}
			require.NoError(t, open(mysql.AnyServer()), c.version)
		}
	}
}

// Broken by a look at the tables before that at the settings: the error would be one of tables that
// are missing, and running the migrations would not help.
func TestASettingIsRefusedBeforeTheTablesAreLookedFor(t *testing.T) {
	pool := sql.OpenDB(&claimant{version: "8.0.11-TiDB-v8.5.6", lies: -1, stale: true})
	defer pool.Close()
	e := mysql.New(pool)
	_, upkeep := e.Upkeep(t.Context(), "s")
	for what, err := range map[string]error{
		"OpenSession": e.OpenSession(t.Context(), driver.Session{ID: "s", TTL: time.Minute}), "Upkeep": upkeep,
	} {
		require.ErrorIs(t, err, driver.ErrConfig, what)
		if !strings.Contains(err.Error(), "tidb_read_staleness") {
			t.Errorf("%s says %q", what, err)
		}
	}
}
