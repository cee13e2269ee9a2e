package fence

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A token that is not written passes no check, whichever statement the server answers without
// running it. Nor is such a token called stale.
func TestACheckThatDidNothingIsAnError(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		w := txtest.New(t, db, migrate.Fences)
		var statements swallow.Statements
		pool := statements.Pool(swallow.Connector(w.DB.Driver(), w.DSN))
		t.Cleanup(func() { _ = pool.Close() })
		for _, known := range []int64{0, 50, 100} {
			for nth, swallowed := 0, "yes"; swallowed != ""; nth++ {
				tx, err := pool.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				if known > 0 {
					require.NoError(t, fence.Check(t.Context(), tx, "r", known))
				}
				statements.Arm(func(_ string, n int) bool { return n == nth })
				checked := fence.Check(t.Context(), tx, "r", 100)
				swallowed = statements.Disarm()
				if errors.Is(checked, fence.ErrStale) || checked != nil && swallowed == "" {
					t.Errorf("token 100 after %d: %v; swallowed: %q", known, checked, swallowed)
				}
				if checked == nil {
					if err := fence.Check(t.Context(), tx, "r", 99); !errors.Is(err, fence.ErrStale) {
						t.Errorf("token 99 after 100: %v; swallowed: %q", err, swallowed)
					}
				}
				require.NoError(t, tx.Rollback())
			}
		}
	})
}
