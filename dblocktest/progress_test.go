package dblocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAHolderThatDoesNotGetOnIsSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		stuck := take(t, f.Client, "n", dblock.Progress(time.Minute))
		began := time.Now()
		time.Sleep(50 * time.Second)
		stuck.Progress()
		next := await(t, f.Another(t).Client, "n")
		if took := time.Since(began); took < 110*time.Second || took > 111*time.Second {
			t.Errorf("succeeded after %v", took)
		}
		for _, kind := range []error{dblock.ErrStalled, dblock.ErrLost} {
			if err := stuck.Unlock(t.Context()); !errors.Is(err, kind) || !errors.Is(context.Cause(stuck.Context()),
				kind) {
				t.Errorf("%v, %v", err, context.Cause(stuck.Context()))
			}
		}
		stuck.Progress() // too late, and of no consequence
		assert.NoError(t, next.Unlock(t.Context()))
	})
}

func TestAHolderThatGetsOnKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		err := f.Client.Do(t.Context(), "n", func(ctx context.Context, l *dblock.Lock) error {
			for range 100 {
				time.Sleep(50 * time.Second)
				l.Progress()
			}
			return context.Cause(ctx)
		}, dblock.Progress(time.Minute))
		assert.NoError(t, err)
		all, err := f.Client.LockAll(t.Context(), []string{"a", "b"}, dblock.For("b", dblock.Progress(time.Minute)))
		require.NoError(t, err)
		time.Sleep(59 * time.Second)
		assert.NoError(t, context.Cause(all.Context()))
		time.Sleep(2 * time.Second)
		assert.ErrorIs(t, context.Cause(all.Context()), dblock.ErrStalled)
		assert.ErrorIs(t, all.Unlock(t.Context()), dblock.ErrStalled)
		assert.ErrorIs(t, assert.ErrOf(f.Client.Lock(t.Context(), "n", dblock.Progress(time.Millisecond))),
			dblock.ErrInvalidOption)
	})
}

// await waits for a lock for as long as it takes.
func await(t *testing.T, c client, name string) lock {
	t.Helper()
	l, err := c.Lock(t.Context(), name)
	require.NoError(t, err)
	return l
}
