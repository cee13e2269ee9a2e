package client

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/sqlite"
)

// halting is an engine that halts before it claims a slot.
type halting struct {
	driver.Backend
	halt atomic.Pointer[func()]
}

func (h *halting) BeginRun(
	ctx context.Context, r driver.Run, of driver.Slot, retry driver.Retry,
) (driver.Run, bool, error) {
	if halt := h.halt.Swap(nil); halt != nil {
		(*halt)()
	}
	return h.Backend.BeginRun(ctx, r, of, retry)
}

// Who was stopped between the lock and the slot, and comes back when another is running, does not
// run beside him.
func TestAJobWhoseLockWasLostBeforeItBeganIsNotRun(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	engine := sqlite.New(db)
	h := &halting{Backend: engine.Backend}
	slow, quick := newClient(t, driver.Engine[*sql.Tx]{Backend: h, Transactions: engine.Transactions}),
		newClient(t, sqlite.New(db))
	type lock = *dblock.Lock
	const slot = time.Hour
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	halt := func() {
		assert.NoError(t, assert.ErrOf(quick.Break(t.Context(), "once/job", "for the test")))
		go func() {
			_, err := jobs.New(quick).OncePer(t.Context(), "job", 2*slot, func(context.Context, lock, time.Time) error {
				close(began)
				<-end
				return nil
			})
			done <- err
		}()
		<-began
	}
	h.halt.Store(&halt)
	ran, err := jobs.New(slow).OncePer(t.Context(), "job", slot, func(context.Context, lock, time.Time) error {
		t.Error("it runs beside another")
		return nil
	})
	if ran || !errors.Is(err, dblock.ErrLost) {
		t.Errorf("%v, %v", ran, err)
	}
	close(end)
	assert.NoError(t, <-done)
}
