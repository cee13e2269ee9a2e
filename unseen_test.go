package dblock_test

import (
	"context"
	"errors"
	"strings"
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

func TestAWaitForTheClientsOwnLockSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*struct{}](t)
		held, err := f.Client.Lock(t.Context(), "own")
		require.NoError(t, err)
		_, err = f.Another(t).Client.Lock(t.Context(), "other")
		require.NoError(t, err)
		_, err = f.Client.Lock(t.Context(), "shared", dblock.Shared())
		require.NoError(t, err)
		for name, own := range map[string]bool{"own": true, "other": false, "shared": false} {
			for _, wait := range []time.Duration{0, time.Millisecond, time.Second} { // before and after the first look
				err := tryFor(t, f.Client, name, wait)
				var refused *dblock.NotAcquiredError
				told := strings.Contains(err.Error(), "held by this client")
				advised := strings.Contains(err.Error(), "to enter it again, lock it under its Context")
				if !errors.As(err, &refused) || refused.Own != own || told != own || advised != (own && wait > 0) {
					t.Errorf("%q after %v: %v", name, wait, err)
				}
			}
		}
		again, err := f.Client.Lock(held.Context(), "own")
		require.NoError(t, err)
		require.NoError(t, again.Unlock(t.Context()))
	})
}

// tryFor is TryLock with wait 0.
func tryFor(t *testing.T, c *dblock.Client[*struct{}], name string, wait time.Duration) error {
	if wait == 0 {
		_, err := c.TryLock(t.Context(), name)
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := c.Lock(ctx, name)
	return err
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
