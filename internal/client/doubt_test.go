package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// departing is a database whose node leaves its cluster: it commits what it then says was rolled
// back.
type departing struct {
	*paper
	leaves bool
}

func (d *departing) inDoubt(err error) error {
	if err != nil || !d.leaves {
		return err
	}
	d.leaves = false
	return driver.Fail(driver.ErrRetry, driver.Join(errors.New("rolled back"), driver.ErrInDoubt))
}

func (d *departing) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	grant, taken, err := d.paper.Take(ctx, r)
	return grant, taken, d.inDoubt(err)
}

func (d *departing) Remove(ctx context.Context, r driver.Removal) ([]driver.Handoff, bool, error) {
	next, left, err := d.paper.Remove(ctx, r)
	return next, left, d.inDoubt(err)
}

func (d *departing) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) ([]driver.Grant, []bool, error) {
	grants, released, err := d.paper.Batch(ctx, takes, releases)
	return grants, released, d.inDoubt(err)
}

// Broken by "it did nothing" of a transaction in doubt.
func TestATransactionInDoubtIsNoLossAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &departing{paper: newPaper()}
		c := newPaperClient(t, d, nil)
		free := func() {
			t.Helper()
			if _, err := d.Change(t.Context(), driver.How{Name: "n"}, func(n *protocol.Name) error {
				if n.Session != "" {
					t.Errorf("held by %s", n.Attempt)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, t.Context(), c, "other") // a session
		d.leaves = true
		l := acquire(t, t.Context(), c, "n")
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		free()
		l = acquire(t, t.Context(), c, "n")
		d.leaves = true
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
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
