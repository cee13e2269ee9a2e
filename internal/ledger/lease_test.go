package ledger

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// leased is a ledger with a hold whose fixed lease expires after a time, on a clock of the bubble.
func leased(t *testing.T, lease time.Duration) (*Ledger, *Hold) {
	began := time.Now()
	now := clock.Func(func() time.Duration { return time.Since(began) })
	l := newLedger(t, now)
	h := newHold(t, l, aliveSession(t, now), "a", protocol.Grant{Token: 7, Lease: lease})
	h.lease = clock.NewDeadline(now, lease)
	if _, _, added := l.add(h, func() bool { l.watchLease(h); return true }); !added {
		t.Fatal("it is not held")
	}
	return l, h
}

func TestAFixedLeaseEndsWhenItWasMovedToAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := leased(t, 10*time.Second)
		done := h.ctx.Done()
		time.Sleep(9 * time.Second)
		for _, end := range []time.Duration{30 * time.Second, 20 * time.Second} { // the second is no later
			if !l.Prolong(h, end) {
				t.Fatal("it is over")
			}
		}
		time.Sleep(30*time.Second - l.config.Clock.Now() - 1)
		synctest.Wait()
		assert.NoError(t, h.ctx.Err(), "it ended too early")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		select {
		case <-done: // without being asked
		default:
			t.Error("it did not end")
		}
		assert.ErrorIs(t, context.Cause(h.ctx), contract.ErrLost, "after its end")
	})
}

func TestAFixedLeaseThatIsOverIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := leased(t, 10*time.Second)
		over := clock.Func(func() time.Duration { return 10 * time.Second }) // nobody has noticed yet
		h.lease = clock.NewDeadline(over, 10*time.Second)
		if l.Prolong(h, time.Minute) || h.Expiry() != 10*time.Second {
			t.Errorf("it ends at %v", h.Expiry())
		}
		l, h = leased(t, 10*time.Second)
		l.Lose(errDisowned, h)
		if l.Prolong(h, time.Minute) || h.Expiry() != 10*time.Second {
			t.Errorf("it was lost, and ends at %v", h.Expiry())
		}
	})
}

// The alarm of the end before cannot be stopped while it is going off.
func TestAnAlarmThatIsLateEndsNoLeaseThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := leased(t, 10*time.Second)
		h.alarm.stop = func() {} // too late to stop it
		if !l.Prolong(h, time.Minute) {
			t.Fatal("it is over")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.NoError(t, h.ctx.Err(), "it ended with the lease before")
		l.Lose(errDisowned, h)
	})
}
