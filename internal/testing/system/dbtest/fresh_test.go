// Package dbtest tests internal/testing/dbtest with a driver for SQLite.
package dbtest

import (
	"os"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestEveryDatabaseIsFreshAndHasTheTables(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		pool := db.SQL(t)
		var version, locks int
		if err := pool.QueryRowContext(t.Context(), "SELECT max(version) FROM dblock_schema").Scan(&version); err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_locks").Scan(&locks); err != nil {
			t.Fatal(err)
		}
		if version == 0 || locks != 0 {
			t.Fatalf("version %d, %d locks", version, locks)
		}
	})
}
