// Package dbtest tests internal/testing/dbtest with a driver for SQLite.
package dbtest

import (
	"os"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestEveryDatabaseIsFreshAndHasTheTables(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		var version, locks int
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT max(version) FROM dblock_schema").Scan(&version))
		require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_locks").Scan(&locks))
		if version == 0 || locks != 0 {
			t.Fatalf("version %d, %d locks", version, locks)
		}
	})
}
