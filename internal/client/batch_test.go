package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Guard marks the hold before it asks whether the client relies on that. It does both at one of the
// moments at which Unlock reads the clock, some of them after Unlock has found the lock unguarded.
// Of two locks the other one is then released alone, and its waiter is notified.
func TestALockThatIsGuardedMeanwhileIsNotReleasedWithTheOthers(t *testing.T) {
	meanwhile := 0
	for i := range int64(40) {
		moment := i / 2
		synctest.Test(t, func(t *testing.T) {
			began, unlocking := time.Now(), atomic.Pointer[Locks]{}
			var looks atomic.Int64
			var guarded bool
			var together []protocol.Op
			hooked := fakedb.Hooked(newPaper(), func(ctx context.Context, c *fakedb.Call) error {
				if len(c.Ops) > 0 && unlocking.Swap(nil) != nil && len(c.Ops) > 1 {
					together = c.Ops
				}
				return c.Do(ctx)
			})
			c := newPaperClient(t, hooked, func(c *Config) {
				c.Clock = clock.Func(func() time.Duration {
					if all := unlocking.Load(); all != nil && looks.Add(1) == moment {
						l := all.All()[0]
						l.claim.Grant.Guarded.Store(true)
						guarded = l.client.ledger.Relies(l.claim)
					}
					return time.Since(began)
				})
			})
			names := []Want{want("a"), want("b"), want("c")}[:2+i%2]
			all, _, err := c.AcquireAll(t.Context(), names, true)
			require.NoError(t, err)
			var next *Lock
			go func() { next = acquire(t, t.Context(), c, "b") }()
			synctest.Wait()
			unlocking.Store(all)
			assert.NoError(t, errors.Join(all.Unlock(t.Context())...))
			synctest.Wait()
			if next == nil {
				t.Fatalf("guarded at look %d: the waiter of another lock is not notified", moment)
			}
			release(t, next)
			released := func(op protocol.Op) bool { return op.On() == "a" }
			switch {
			case guarded && slices.ContainsFunc(together, released):
				t.Errorf("guarded at look %d, and released with others", moment)
			case guarded && len(together) == 2:
				meanwhile++
			}
		})
	}
	if meanwhile == 0 {
		t.Error("at no moment was it guarded after Unlock had looked")
	}
}
