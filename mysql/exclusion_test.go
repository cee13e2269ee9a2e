package mysql_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// claimant is a server that says it is MySQL, MariaDB or TiDB, and locks rows as it likes.
type claimant struct {
	version string
	lies    int  // the try, in their order, that a lock does not keep out; -1: none
	stale   bool // its connections read a past in which dblock's tables were not made yet

	mu     sync.Mutex               // guards the following
	locked map[*fakedb.Session]bool // those that have a row
	tries  int                      // those of a transaction while another one has the row
	clock  int
}

func (c *claimant) pool() *sql.DB {
	c.locked = map[*fakedb.Session]bool{}
	return sql.OpenDB(&fakedb.Server{Query: c.query, End: func(on *fakedb.Session) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.locked, on)
	}})
}

func (c *claimant) query(on *fakedb.Session, text string) ([]sqldriver.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := func(values ...sqldriver.Value) ([]sqldriver.Value, error) { return values, nil }
	c.clock++
	switch {
	case strings.Contains(text, "VERSION()"):
		return row(c.version)
	case strings.Contains(text, "@@autocommit"):
		return row(true, "NO_CHAIN", "", int64(1)<<40, "utf8mb4", "utf8mb4", "utf8mb4", fmt.Sprint(c.clock))
	case strings.Contains(text, "@@timestamp"):
		return row(fmt.Sprint(c.clock))
	case strings.Contains(text, "@@tidb_txn_mode") && c.stale:
		return row("pessimistic", "OFF", "", "-5", "0")
	case strings.Contains(text, "dblock_") && c.stale:
		return nil, &gomysql.MySQLError{Number: 1146, Message: "there is no such table"}
	case strings.Contains(text, "@@tidb_txn_mode"):
		return row("pessimistic", "OFF", "", "0", "0")
	case text == "SELECT DATABASE()":
		return row("app")
	case strings.HasPrefix(text, "SELECT COUNT(*) FROM `app`.dblock_schema"):
		return row(int64(1))
	case strings.HasSuffix(text, "WHERE id = 's' "): // it locks nothing
		return row("s")
	case strings.Contains(text, "SELECT id FROM `app`.dblock_sessions"):
		if len(c.locked) > 0 {
			c.tries++
		}
		if len(c.locked) == 0 || c.tries-1 == c.lies {
			c.locked[on] = true
			return row("s")
		}
		return nil, &gomysql.MySQLError{Number: 3572, Message: "NOWAIT is set"}
	}
	return nil, nil
}

func TestAServerWhoseLocksExcludeNothingIsRefused(t *testing.T) {
	for of, tries := range map[string]int{"8.4.6": 4, "11.8.2-MariaDB": 4, "8.0.11-TiDB-v8.5.6": 1, "8.4.6-Vitess": 4} {
		for lies := -1; lies < tries; lies++ {
			c := &claimant{version: fmt.Sprintf("%s-lies-%d", of, lies), lies: lies}
			pool := c.pool()
			defer pool.Close()
			open := func(options ...mysql.Option) error {
				return inside.Of(mysql.New(pool, options...)).OpenSession(t.Context(),
					driver.Session{ID: "s", TTL: time.Minute})
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
	pool := (&claimant{version: "8.0.11-TiDB-v8.5.6", lies: -1, stale: true}).pool()
	defer pool.Close()
	e := inside.Of(mysql.New(pool))
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
