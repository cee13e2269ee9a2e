package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// extended runs a test of a lock with a lease of a second, whose extensions go through a hook.
func extended(t *testing.T, hook fakedb.Hook, f func(t *testing.T, l *Lock, until time.Time)) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, fakedb.Hooked(newPaper(), func(ctx context.Context, c *fakedb.Call) error {
			if c.Moves() {
				return hook(ctx, c)
			}
			return c.Do(ctx)
		}), nil)
		w := want("n")
		w.Lease = time.Second
		l, err := c.Acquire(t.Context(), &w, true)
		require.NoError(t, err)
		f(t, l, l.Until())
	})
}

// The client goes by what it was told. Nothing waits for a lease that the database has for longer.
func TestAnExtendWhoseAnswerWasLostLeavesTheEarlierEnd(t *testing.T) {
	var leave context.CancelFunc
	extended(t, func(ctx context.Context, c *fakedb.Call) error {
		assert.NoError(t, c.Do(ctx))
		leave()
		return fakedb.ErrLost
	}, func(t *testing.T, l *Lock, until time.Time) {
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		require.ErrorIs(t, l.Extend(ctx, time.Hour), driver.ErrUnavailable, "the lost answer")
		assert.Equal(t, l.Until(), until, "its end")
		<-l.Context().Done()
		assert.Equal(t, time.Now(), until, "it ended")
		assert.ErrorIs(t, context.Cause(l.Context()), ErrLost, "it ended with")
		assert.ErrorIs(t, l.Extend(t.Context(), time.Hour), ErrLost, "extended after its end")
	})
}

func TestAnExtendWhoseAnswerWasLostIsAskedForAgain(t *testing.T) {
	sent := 0
	extended(t, func(ctx context.Context, c *fakedb.Call) error {
		err := c.Do(ctx)
		if sent++; sent == 1 {
			err = fakedb.ErrLost
		}
		return err
	}, func(t *testing.T, l *Lock, until time.Time) {
		require.NoError(t, l.Extend(t.Context(), time.Hour))
		if moved := l.Until().Sub(until); sent != 2 || moved < 5*time.Second {
			t.Errorf("asked %d times, its end has moved by %v", sent, moved)
		}
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

func TestALockThatEndedWhileItWasExtendedIsLost(t *testing.T) {
	sent := 0
	extended(t, func(ctx context.Context, c *fakedb.Call) error {
		sent++
		err := c.Do(ctx)
		time.Sleep(2 * time.Second) // past the lease
		return err
	}, func(t *testing.T, l *Lock, _ time.Time) {
		for range 2 { // the second is not sent: the database would keep the name for longer
			assert.ErrorIs(t, l.Extend(t.Context(), 3*time.Second), ErrLost, "extended")
		}
		assert.Equal(t, sent, 1, "were sent")
		assert.ErrorIs(t, l.Unlock(t.Context()), ErrLost, "unlocked")
	})
}
