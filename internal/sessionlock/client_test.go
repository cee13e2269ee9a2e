package sessionlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by taking the end of a context for a holder.
func TestATryThatIsNotAnsweredIsNotHeld(t *testing.T) {
	in(t, func(b *bench) {
		c := NewClient(b.keeper(), true)
		b.do(func() { b.stall = true })
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		for what, try := range map[string]func() error{
			"TryLock": func() error { _, err := c.TryLock(ctx, "n"); return err },
			"TryLockTx": func() error {
				return c.InTx(ctx, "trylocktx", []string{"n"}, false, func(ctx context.Context, _ string, _ bool) (bool,
					error) {
					<-ctx.Done()
					return false, ctx.Err()
				})
			},
		} {
			if err := try(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, contract.ErrNotAcquired) {
				b.Errorf("%s: %v: nobody was seen to hold the lock", what, err)
			}
			ctx, cancel = context.WithTimeout(b.Context(), time.Second)
			defer cancel()
		}
		assert.ErrorIs(b, c.outcome(ctx, false, false, driver.ErrBusy), driver.ErrBusy)
		b.do(func() { b.stall = false })
		assert.NoError(b, c.Close(b.Context()))
	})
}

func TestAClientTellsOfALossOnceAndGoesOn(t *testing.T) {
	in(t, func(b *bench) {
		c := NewClient(b.keeper(), true)
		first, err := c.Lock(b.Context(), "n")
		require.NoError(b, err)
		b.cut()
		<-first.Context().Done()
		for range 2 {
			if err := first.Unlock(b.Context()); !errors.Is(err, contract.ErrLost) ||
				!errors.Is(context.Cause(first.Context()), contract.ErrLost) {
				b.Errorf("%v", err)
			}
		}
		again, err := c.TryLock(b.Context(), "n")
		require.NoError(b, err)
		synctest.Wait() // the first is forgotten by the goroutine that has ended it
		if err := again.Unlock(b.Context()); err != nil || len(c.holds) > 0 {
			b.Errorf("%v, and %d holds are left", err, len(c.holds))
		}
		assert.NoError(b, c.Close(b.Context()))
	})
}

// The server does not answer: Close says so in time, or when its context ends, and the lock is
// given up with the connection. Broken by a Close that waits for the answer.
func TestCloseWaitsNoLongerThanItsContextOrItsTimeout(t *testing.T) {
	in(t, func(b *bench) {
		for _, limit := range []time.Duration{time.Second, time.Hour} {
			most := min(limit, contract.CloseTimeout+contract.StuckTimeout)
			ctx, cancel := context.WithTimeout(b.Context(), limit)
			defer cancel()
			c := NewClient(b.keeper(), true)
			l, err := c.Lock(b.Context(), most.String())
			require.NoError(b, err)
			b.do(func() { b.stall = true })
			began := time.Now()
			err = c.Close(ctx)
			if took := time.Since(began); err == nil || took > most {
				b.Errorf("%v after %v", err, took)
			}
			assert.ErrorIs(b, context.Cause(l.Context()), contract.ErrClosed)
			b.do(func() { b.stall = false })
			synctest.Wait()
		}
	})
}
