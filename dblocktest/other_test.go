package dblocktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestSomebodyElseHasTheName(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		release := f.Hold(t, "n")
		_, err := f.Client.TryLock(t.Context(), "n")
		var refused *dblock.NotAcquiredError
		if !errors.As(err, &refused) || refused.Host != "somebody-else" {
			t.Errorf("TryLock: %v", err)
		}
		f.Advance(time.Hour)
		isTaken(t, f.Client, "n")
		waits := taking(t, f.Client, "n", func(lock) {})
		f.AwaitQueue(t, "n", 1)
		release()
		release()
		has(t, got(t, waits))
	})
}

func TestSomebodyElseReads(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		release := f.Hold(t, "n", dblock.Shared())
		read := take(t, f.Client, "n", dblock.Shared())
		isTaken(t, f.Client, "n")
		assert.NoError(t, read.Unlock(t.Context()))
		release()
		take(t, f.Client, "n")
	})
}

func TestSomebodyElseHasSomePermits(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	f.Hold(t, "n", dblock.Permits(2, 3))
	isTaken(t, f.Client, "n", dblock.Permits(2, 3))
	take(t, f.Client, "n", dblock.Permits(1, 3))
}

func TestSomebodyElseWaitsBefore(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		leave := f.Queue(t, "n")
		f.AwaitQueue(t, "n", 1)
		waits := taking(t, f.Client, "n", func(lock) {})
		f.AwaitQueue(t, "n", 2)
		assert.NoError(t, held.Unlock(t.Context()))
		f.Advance(time.Minute)
		if len(waits) > 0 {
			t.Error("somebody else was passed over")
		}
		leave()
		leave()
		has(t, got(t, waits))
	})
}

func TestAWriterThatWaitsHoldsBackReaders(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		f.Hold(t, "n", dblock.Shared())
		leave := f.Queue(t, "n")
		isTaken(t, f.Client, "n", dblock.Shared())
		leave()
		take(t, f.Client, "n", dblock.Shared())
	})
}

func TestOfAFreeNameQueueIsAHolder(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	leave := f.Queue(t, "n")
	isTaken(t, f.Client, "n")
	leave()
	take(t, f.Client, "n")
}

func TestNobodyElseCanHoldWhatIsHeld(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	take(t, f.Client, "n")
	fails(t, `no other process can hold "n"`, func(t testing.TB) { f.Hold(t, "n") })
	fails(t, `no other process can wait for ""`, func(t testing.TB) { f.Queue(t, "") })
}

func TestWhatIsHeldForASubtestIsReleasedWithIt(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	t.Run("subtest", func(t *testing.T) {
		f.Hold(t, "n")
		f.Queue(t, "n")
		take(t, f.Another(t).Client, "m")
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, name := range []string{"n", "m"} {
		assert.NoError(t, assert.ErrOf(f.Client.Lock(ctx, name)))
	}
}
