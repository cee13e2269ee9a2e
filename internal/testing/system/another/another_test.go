// Package another gives each engine pools of the servers that are not its own.
package another

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// A pool of another database is told apart by the errors of its driver, with tables there and
// without. The engine of SQLite: internal/testing/system/sqlite.
func TestAPoolOfAnotherServer(t *testing.T) {
	for _, c := range []struct{ engine, kind, says string }{
		{"postgres", dbtest.KindMySQL, "MySQL or MariaDB"},
		{"postgres", dbtest.KindMariaDB, "MySQL or MariaDB"},
		{"postgres", dbtest.KindSQLite, "SQLite"},
		{"mysql", dbtest.KindPostgres, "PostgreSQL"},
		{"mysql", dbtest.KindSQLite, "SQLite"},
	} {
		t.Run(c.engine+" on "+c.kind, func(t *testing.T) {
			for what, db := range map[string]dbtest.Database{"empty": dbtest.Empty(t, c.kind),
				"migrated": dbtest.Migrated(t, c.kind)} {
				pool := db.SQL(t)
				engine := mysql.New(pool)
				if c.engine == "postgres" {
					engine = postgres.NewSQL(pool)
				}
				client, err := dblock.New(engine)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = client.TryLock(ctx, "n")
				if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
					"package "+c.engine+" was given a pool of "+c.says) {
					t.Errorf("%s: %v", what, err)
				}
				assert.NoError(t, client.Close(ctx))
			}
		})
	}
}
