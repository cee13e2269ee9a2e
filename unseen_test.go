package dblock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/driver"
)

// silent is a server that answers nothing before its caller's context ends.
type silent struct{}

func (silent) Validate() error                                                   { return nil }
func (silent) Open(string, *slog.Logger, time.Duration) driver.Keeper[*struct{}] { return silent{} }
func (silent) Close(context.Context) error                                       { return nil }

func (silent) Acquire(ctx context.Context, _ string, _, _ bool) (driver.Possession, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

func (silent) LockTx(ctx context.Context, _ *struct{}, _ string, _, _ bool) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestATryOfANativeLockThatIsNotAnsweredIsNotHeld(t *testing.T) {
	c, err := dblock.New(driver.Engine[*struct{}]{Native: silent{}}, dblock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for what, try := range map[string]func(ctx context.Context) error{
		"TryLock":   func(ctx context.Context) error { _, err := c.TryLock(ctx, "n"); return err },
		"TryLockTx": func(ctx context.Context) error { return c.TryLockTx(ctx, &struct{}{}, "n") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := try(ctx)
		cancel()
		if !errors.Is(err, dblock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("%s: %v: want ErrUnavailable and the context's error: nobody was seen to hold the lock", what, err)
		}
	}
}

// A request waits a moment for others of its client before it joins a queue. Nothing of it was sent
// when its context ends, but the client knows that others wait.
func TestALockThatEndsBeforeItJoinsTheQueueHasSeenTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*struct{}](t)
		held, err := f.Client.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
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
			if !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.Canceled) || errors.Is(err, dblock.ErrUnavailable) {
				t.Errorf("%v: want ErrNotAcquired and the context's error", err)
			}
		}
	})
}
