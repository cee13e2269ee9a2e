package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// A pool of another database is told apart by the errors of its driver, with tables there and
// without.
func TestAPoolOfAnotherServer(t *testing.T) {
	for kind, says := range map[string]string{
		dbtest.KindPostgres: "PostgreSQL",
		dbtest.KindMySQL:    "MySQL or MariaDB", dbtest.KindMariaDB: "MySQL or MariaDB",
	} {
		t.Run(kind, func(t *testing.T) {
			for what, db := range map[string]dbtest.Database{"empty": dbtest.Empty(t, kind),
				"migrated": dbtest.Migrated(t, kind)} {
				client, err := dblock.New(sqlite.New(db.SQL(t)))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = client.TryLock(ctx, "n")
				if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
					"package sqlite was given a pool of "+says) {
					t.Errorf("%s: %v", what, err)
				}
				assert.NoError(t, client.Close(ctx))
			}
		})
	}
}
