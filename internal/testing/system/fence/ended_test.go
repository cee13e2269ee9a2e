package fence

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
)

// Broken by a Check that writes before it has proved that its transaction is open.
func TestATransactionThatTheServerHasEndedIsRefusedAndRemembersNoToken(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		w.EachEnded(t, func(t *testing.T, end func() *txtest.Tx) {
			for _, known := range []bool{false, true} {
				resource := w.Name(fmt.Sprint(t.Name(), known))
				if known {
					seen(t, w, resource, 7)
				}
				tx := end()
				err := check(t, tx, resource, 9)
				require.ErrorIs(t, err, driver.ErrTxDone)
				require.ErrorIs(t, err, sql.ErrTxDone)
				_ = tx.TryRollback()
				seen(t, w, resource, 8)
			}
		})
	})
}
