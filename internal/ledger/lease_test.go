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

// leased is a ledger with a claim whose fixed lease expires after a time, on a clock of the bubble.
func leased(t *testing.T, lease time.Duration) (*Ledger, *Claim) {
	began := time.Now()
	now := clock.Func(func() time.Duration { return time.Since(began) })
	l := newLedger(t, now)
	c := granted(l, aliveSession(t, now), "a", protocol.Grant{Token: 7, Lease: lease})
	l.open(t.Context(), c)
	c.lease = clock.NewDeadline(now, lease)
	if _, _, held := l.enter(c, func() bool { l.watchLease(c); return true }); !held {
		t.Fatal("it is not held")
	}
	return l, c
}

func TestAFixedLeaseEndsWhenItWasMovedToAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := leased(t, 10*time.Second)
		done := c.ctx.Done()
		time.Sleep(9 * time.Second)
		for _, end := range []time.Duration{30 * time.Second, 20 * time.Second} { // the second is no later
			if !l.Prolong(c, end) {
				t.Fatal("it is over")
			}
		}
		time.Sleep(30*time.Second - l.config.Clock.Now() - 1)
		synctest.Wait()
		assert.NoError(t, c.ctx.Err(), "it ended too early")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		select {
		case <-done: // without being asked
		default:
			t.Error("it did not end")
		}
		assert.ErrorIs(t, context.Cause(c.ctx), contract.ErrLost, "after its end")
	})
}

func TestAFixedLeaseThatIsOverIsNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := leased(t, 10*time.Second)
		over := clock.Func(func() time.Duration { return 10 * time.Second }) // nobody has noticed yet
		c.lease = clock.NewDeadline(over, 10*time.Second)
		if l.Prolong(c, time.Minute) || c.Expiry() != 10*time.Second {
			t.Errorf("it ends at %v", c.Expiry())
		}
		l, c = leased(t, 10*time.Second)
		l.Lose(context.Background(), ErrDisowned, c)
		if l.Prolong(c, time.Minute) || c.Expiry() != 10*time.Second {
			t.Errorf("it was lost, and ends at %v", c.Expiry())
		}
	})
}

// The alarm of the end before cannot be stopped while it is going off.
func TestAnAlarmThatIsLateEndsNoLeaseThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := leased(t, 10*time.Second)
		c.alarm.stop = func() {} // too late to stop it
		if !l.Prolong(c, time.Minute) {
			t.Fatal("it is over")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.NoError(t, c.ctx.Err(), "it ended with the lease before")
		l.Lose(context.Background(), ErrDisowned, c)
	})
}
