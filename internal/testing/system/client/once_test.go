package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/sqlite"
)

// A client that was stopped between the lock and the slot, and goes on when another runs the job,
// does not run it, too.
func TestAJobWhoseLockWasLostBeforeItBeganIsNotRun(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	var halt func() // before a slot is claimed
	slow, quick := hookedClient(t, db, func(ctx context.Context, c *fakedb.Call) error {
		if c.Method == "BeginRun" {
			halt()
		}
		return c.Do(ctx)
	}), newClient(t, sqlite.New(db))
	type lock = *dblock.Lock
	const slot = time.Hour
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	halt = sync.OnceFunc(func() {
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
	})
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
