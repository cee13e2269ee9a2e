package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var errDenied = driver.Refused(errors.New("permission denied"))

// refusing is a database that refuses some statements, or loses their answers.
type refusing struct {
	*paper
	mu      sync.Mutex
	join    func(r protocol.Request) error
	take    error
	remove  error
	removed int
}

func (d *refusing) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	switch op := ops[0].(type) {
	case protocol.Take:
		results, err := d.paper.Run(ctx, ops...)
		if err == nil {
			err = d.take
		}
		return results, err
	case protocol.Join:
		if d.join != nil {
			if err := d.join(op.Request); err != nil {
				return nil, err
			}
		}
	case protocol.Removal:
		d.mu.Lock()
		d.removed++
		err := d.remove
		d.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return d.paper.Run(ctx, ops...)
}

func (d *refusing) removals() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.removed
}

// Broken by a residue that is looked for in the engine's kinds of failure alone.
func TestAnAnswerThatIsLostIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &refusing{paper: newPaper()}
		c := newPaperClient(t, d, nil)
		acquire(t, t.Context(), c, "other") // a session
		d.take = errors.New("the connection broke")
		w := want("n")
		require.ErrorIs(t, require.ErrOf(c.Acquire(t.Context(), &w, false)), d.take)
		d.take = nil
		synctest.Wait()
		if row, _ := d.Locks.Row("n"); row.Session != "" { // before a heartbeat lists what the session has
			t.Error("the lock that was taken was not released")
		}
	})
}

// Broken by an error of a cohort's statement that all its members get.
func TestARefusedMemberOfACohortTakesNoOtherAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &refusing{paper: newPaper()}
		c := newPaperClient(t, d, nil)
		held := acquire(t, t.Context(), c, "n")
		var bad string
		joined, first := make(chan struct{}), true
		d.join = func(r protocol.Request) error {
			switch {
			case first: // the others gather meanwhile
				first = false
				<-joined
			case bad == "" && r.Members > 1:
				bad = r.Thread
			}
			if r.Thread == bad {
				return errDenied
			}
			return nil
		}
		var failures []error
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				w := want("n")
				l, err := c.Acquire(t.Context(), &w, true)
				if err != nil {
					failures = append(failures, err)
					return
				}
				assert.NoError(t, l.Unlock(t.Context()))
			})
			synctest.Wait()
		}
		close(joined)
		time.Sleep(time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		all.Wait()
		if len(failures) != 1 || !errors.Is(failures[0], errDenied) {
			t.Errorf("of five requests, of which one is refused, fail: %v", failures)
		}
	})
}

// Broken by pauses that stay short.
func TestGivingBackWhatIsRefusedForGoodIsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &refusing{paper: newPaper()}
		c := newPaperClient(t, d, nil)
		l := acquire(t, t.Context(), c, "n")
		d.remove = errDenied
		require.ErrorIs(t, l.Unlock(t.Context()), errDenied)
		before := d.removals()
		time.Sleep(10 * time.Minute)
		if n := d.removals() - before; n > 100 {
			t.Errorf("%d statements in ten minutes give back what cannot be given back", n)
		}
		d.mu.Lock()
		d.remove = nil
		d.mu.Unlock()
		time.Sleep(time.Minute)
		acquire(t, t.Context(), c, "n")
	})
}
