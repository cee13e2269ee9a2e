package transaction

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// Broken by looking for one of them alone: database/sql may end a transaction between a turn that
// ran out and the statement behind it.
func TestATransactionThatEndsBetweenTwoTurnsIsDone(t *testing.T) {
	closed := errors.New("sql: Rows are closed")
	for _, err := range []error{closed, sql.ErrTxDone, driver.Join(errors.New("lock timeout"), closed)} {
		assert.ErrorIs(t, Ended(t.Context(), t.Context(), err), driver.ErrTxDone, err)
	}
}
