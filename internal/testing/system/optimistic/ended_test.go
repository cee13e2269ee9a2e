package optimistic

import (
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// Broken by a Read or Bump that does not prove that its transaction is open.
func TestATransactionThatTheServerHasEndedIsRefusedAndBumpsNothing(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		if !w.Default() {
			return
		}
		w.EachEnded(t, func(t *testing.T, end func() *txtest.Tx) {
			name := w.Name(t.Name())
			for version := range int64(2) {
				tx := end()
				_, err := optimistic.Read(t.Context(), tx.TX, name)
				require.ErrorIs(t, err, driver.ErrTxDone)
				err = optimistic.Bump(t.Context(), tx.TX, name, version)
				require.ErrorIs(t, err, driver.ErrTxDone)
				require.ErrorIs(t, err, sql.ErrTxDone)
				_ = tx.TryRollback()
				tx = w.Begin(t)
				require.NoError(t, optimistic.Bump(t.Context(), tx.TX, name, version))
				tx.Commit()
			}
		})
	}, migrate.Versions)
}
