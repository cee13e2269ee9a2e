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
func TestALockThatIsGuardedMeanwhileIsNotReleasedWithTheOthers(t *testing.T) {
	meanwhile := 0
	for moment := range int64(20) {
		synctest.Test(t, func(t *testing.T) {
			began, unlocking := time.Now(), atomic.Pointer[Locks]{}
			var looks atomic.Int64
			var guarded bool
			var together []protocol.Op
			hooked := fakedb.Hooked(newPaper(), func(ctx context.Context, c *fakedb.Call) error {
				if unlocking.Load() != nil && len(c.Ops) > 1 {
					together = append(together, c.Ops...)
				}
				return c.Do(ctx)
			})
			c := newPaperClient(t, hooked, func(c *Config) {
				c.Clock = clock.Func(func() time.Duration {
					if all := unlocking.Load(); all != nil && looks.Add(1) == moment {
						l := all.All()[0]
						l.hold.Guarded.Store(true)
						guarded = l.client.ledger.Relies(l.hold)
					}
					return time.Since(began)
				})
			})
			all, _, err := c.AcquireAll(t.Context(), []Want{want("a"), want("b"), want("c")}, true)
			require.NoError(t, err)
			synctest.Wait()
			unlocking.Store(all)
			assert.NoError(t, errors.Join(all.Unlock(t.Context())...))
			unlocking.Store(nil)
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
