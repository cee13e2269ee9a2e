package client

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// lockFor calls Lock in the background, and unlocks after a hold.
func lockFor(t *testing.T, ctx context.Context, c *Client, hold time.Duration) {
	go func() {
		if l, err := c.Acquire(ctx, new(want("n")), true); err == nil {
			time.Sleep(hold)
			assert.NoError(t, l.Unlock(context.Background()))
		}
	}()
	synctest.Wait()
}

// Broken by a line for each look, by a line for a wait that ends by itself, and by silence.
func TestAWaitWithoutAnEndForAnOwnLockIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &written{}
		c := newPaperClient(t, newPaper(), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(w, nil)) })
		held := acquire(t, t.Context(), c, "n")
		bounded, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lockFor(t, bounded, c, 0)
		lockFor(t, t.Context(), c, 0)
		lockFor(t, t.Context(), c, 0)
		time.Sleep(14 * time.Second)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("within a TTL: %q", lines)
		}
		time.Sleep(10 * time.Second)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") ||
			!strings.Contains(lines[0], "under its Context") || !strings.Contains(lines[0], "waiting=2") {
			t.Errorf("of two waits: %q", lines)
		}
		lockFor(t, t.Context(), c, 0)
		time.Sleep(time.Minute)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], "waiting=1") {
			t.Errorf("of a third: %q", lines)
		}
		assert.NoError(t, held.Unlock(t.Context()))
		for range 9 { // a queue that moves
			lockFor(t, t.Context(), c, 10*time.Second)
		}
		time.Sleep(2 * time.Minute)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("of a queue that moves: %q", lines)
		}
	})
}

func TestAWaitWithoutAnEndForATransactionIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := &written{}, newPaper()
		var open, silent atomic.Bool
		c := newPaperClient(t, fakedb.Hooked(p, func(ctx context.Context, c *fakedb.Call) error {
			switch {
			case c.Method == "Run" && silent.Load(): // a try without an answer
				<-ctx.Done()
				return ctx.Err()
			case c.Method == "Run" && open.Load():
				return driver.ErrBusy
			}
			return c.Do(ctx)
		}), func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(w, nil))
			c.NotAcquired = func(_ driver.State, _ bool, cause error) error {
				return driver.Join(ErrNotAcquired, cause)
			}
		})
		open.Store(true)
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Acquire(bounded, new(want("n")), true)
		if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), openTransaction) {
			t.Errorf("%v: want the transaction", err)
		}
		bounded, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(55*time.Second, func() { silent.Store(true) })
		_, err = c.Acquire(bounded, new(want("n")), true)
		if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), openTransaction) {
			t.Errorf("of a last try without an answer: %v: want the transaction", err)
		}
		silent.Store(false)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("with a deadline: %q", lines)
		}
		lockFor(t, t.Context(), c, 0)
		time.Sleep(14 * time.Second)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("within a TTL: %q", lines)
		}
		time.Sleep(time.Minute)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], openTransaction) {
			t.Errorf("of a wait: %q", lines)
		}
		open.Store(false)
		time.Sleep(time.Second)
	})
}
