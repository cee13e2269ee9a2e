package client

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// leased is a client with a hold whose fixed lease ends after a time, on a clock of the bubble's.
func leased(t *testing.T, lease time.Duration) (*Client, *hold) {
	began := time.Now()
	now := clock.Func(func() time.Duration { return time.Since(began) })
	c := New(newPaper(), Config{Clock: now, Log: slog.New(slog.DiscardHandler)})
	h := &hold{attempt: c.registry.request("n", "a"), in: aliveSession(t, now), fixed: true}
	h.mode.Store(&mode{token: 7})
	h.ctx, h.cancel = context.WithCancelCause(t.Context())
	if _, _, added := c.registry.add(h, func() bool { c.watchLease(h, lease); return true }); !added {
		t.Fatal("it is not held")
	}
	return c, h
}

func TestAFixedLeaseEndsWhenItWasMovedToAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := leased(t, 10*time.Second)
		time.Sleep(9 * time.Second)
		for _, end := range []time.Duration{30 * time.Second, 20 * time.Second} { // the second is no later
			if !c.prolong(h, end) {
				t.Fatal("it is over")
			}
		}
		time.Sleep(30*time.Second - c.config.Clock.Now() - 1)
		synctest.Wait()
		if err := h.ctx.Err(); err != nil {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(h.ctx), ErrLost) {
			t.Errorf("after its end: %v", context.Cause(h.ctx))
		}
	})
}

func TestAFixedLeaseThatIsOverIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := leased(t, 10*time.Second)
		c.config.Clock = clock.Func(func() time.Duration { return 10 * time.Second }) // nobody has noticed yet
		if c.prolong(h, time.Minute) || h.end != 10*time.Second {
			t.Errorf("it ends at %v", h.end)
		}
		c, h = leased(t, 10*time.Second)
		c.lose(h, errDisowned)
		if c.prolong(h, time.Minute) || h.end != 10*time.Second {
			t.Errorf("it was lost, and ends at %v", h.end)
		}
	})
}

// The alarm of the end before cannot be stopped while it is going off.
func TestAnAlarmThatIsLateEndsNoLeaseThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := leased(t, 10*time.Second)
		h.unwatch = func() {} // too late to stop it
		if !c.prolong(h, time.Minute) {
			t.Fatal("it is over")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if err := h.ctx.Err(); err != nil {
			t.Error("it ended with the lease before")
		}
		c.lose(h, errDisowned)
	})
}
