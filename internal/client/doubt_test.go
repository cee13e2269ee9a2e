package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// departing is a database whose node leaves its cluster: it commits what it then says was rolled
// back.
type departing struct {
	*paper
	leaves bool
}

func (d *departing) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	results, err := d.paper.Run(ctx, ops...)
	if err != nil || !d.leaves {
		return results, err
	}
	d.leaves = false
	return nil, driver.Fail(driver.ErrRetry, driver.Join(errors.New("rolled back"), driver.ErrInDoubt))
}

// Broken by "it did nothing" of a transaction in doubt.
func TestATransactionInDoubtIsNoLossAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &departing{paper: newPaper()}
		c := newPaperClient(t, d, nil)
		free := func() {
			t.Helper()
			if row, _ := d.Locks.Row("n"); row.Session != "" {
				t.Errorf("held by %s", row.Attempt)
			}
		}
		acquire(t, t.Context(), c, "other") // a session
		d.leaves = true
		l := acquire(t, t.Context(), c, "n")
		assert.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		free()
		l = acquire(t, t.Context(), c, "n")
		d.leaves = true
		assert.NoError(t, l.Unlock(t.Context()))
		free()
		d.leaves = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := want("n")
		if _, err := c.Acquire(ctx, &w, false); err != nil { // what was taken in doubt is not in its own way
			t.Error(err)
		}
	})
}
