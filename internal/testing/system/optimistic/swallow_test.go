package optimistic

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// A version that is not bumped says so, whichever statement the server answers without running it.
func TestABumpThatDidNothingIsAnError(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		w := txtest.New(t, db, migrate.Versions)
		var statements swallow.Statements
		pool := statements.Pool(swallow.Connector(w.DB.Driver(), w.DSN))
		t.Cleanup(func() { _ = pool.Close() })
		commitBump(t, w, "later", 0)
		for name, version := range map[string]int64{"first": 0, "later": 1} {
			for nth, swallowed := 0, "yes"; swallowed != ""; nth++ {
				tx, err := pool.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				statements.Arm(func(_ string, n int) bool { return n == nth })
				bumped := optimistic.Bump(t.Context(), tx, name, version)
				swallowed = statements.Disarm()
				now, err := optimistic.Read(t.Context(), tx, name)
				if err != nil || bumped == nil && now != version+1 || bumped != nil && swallowed == "" {
					t.Errorf("%s is at version %d after Bump(%d): %v, %v; swallowed: %q", name, now, version, bumped,
						err, swallowed)
				}
				statements.Arm(func(_ string, n int) bool { return n == nth })
				if now, err := optimistic.Read(t.Context(), tx, name); err == nil && bumped == nil && now != version+1 {
					t.Errorf("%s is at version %d, says Read; swallowed: %q", name, now, statements.Disarm())
				}
				statements.Disarm()
				require.NoError(t, tx.Rollback())
			}
		}
	})
}
