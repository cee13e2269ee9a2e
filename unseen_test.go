package dblock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a computation of Until when the error is made, from a duration that was read before.
func TestUntilIsTheEndOfTheLeaseThatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*struct{}](t)
		began := time.Now()
		_, err := f.Client.Lock(t.Context(), "n")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // shorter than the pause between two heartbeats
		defer cancel()
		_, err = f.Another(t).Client.Lock(ctx, "n")
		var held *dblock.NotAcquiredError
		if !errors.As(err, &held) || !held.Until.Equal(began.Add(f.Client.TTL())) {
			t.Errorf("%v: want the end of the lease %v after %v", err, f.Client.TTL(), began)
		}
	})
}

// A request waits a moment for others of its client before it joins a queue. Nothing of it was sent
// when its context ends, but the client knows that others wait.
func TestALockThatEndsBeforeItJoinsTheQueueHasSeenTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*struct{}](t)
		held, err := f.Client.Lock(t.Context(), "n")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i, c := range []*dblock.Client[*struct{}]{f.Another(t).Client, f.Client} {
			go func() { _, _ = c.Lock(ctx, "n") }()
			f.AwaitQueue(t, "n", i+1)
		}
		if err := held.Unlock(t.Context()); err != nil { // the other client has it now
			t.Fatal(err)
		}
		for _, option := range [][]dblock.LockOption{nil, {dblock.Lease(time.Hour)}} {
			brief, stop := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Millisecond, stop)
			_, err = f.Client.Lock(brief, "n", option...)
			if !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.Canceled) ||
				errors.Is(err, dblock.ErrUnavailable) {
				t.Errorf("%v: want ErrNotAcquired and the context's error", err)
			}
		}
	})
}
