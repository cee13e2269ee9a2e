package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// detaching is a client whose calls pass a hook that the test sets, and another client on the
// same database.
type detaching struct {
	*testing.T
	*paper
	c, other *Client
	hook     atomic.Pointer[fakedb.Hook]
}

func detach(t *testing.T, test func(t *testing.T, d *detaching)) {
	synctest.Test(t, func(t *testing.T) {
		d := &detaching{T: t, paper: newPaper()}
		d.c = newPaperClient(t, fakedb.Hooked(d.paper, func(ctx context.Context, c *fakedb.Call) error {
			if hook := d.hook.Load(); hook != nil {
				return (*hook)(ctx, c)
			}
			return c.Do(ctx)
		}), nil)
		d.other = newPaperClient(t, d.paper, nil)
		test(t, d)
	})
}

// detached is the token of a lock of the other client's, which it has detached.
func (d *detaching) detached() int64 {
	l := acquire(d.T, d.Context(), d.other, "n")
	require.NoError(d.T, l.Detach(d.Context(), time.Hour))
	return l.Token()
}

// free fails if the client goes on holding the name.
func (d *detaching) free() {
	d.Helper()
	time.Sleep(time.Second) // before a heartbeat lists what the session has
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if row, _ := d.Locks.Row("n"); row.Session != "" {
		d.Errorf("held by %s with token %d", row.Session, row.Last)
	}
}

// Broken by the reason of the client's own with which a session that has ended has requests sent
// again.
func TestResumeBesideCloseIsClosed(t *testing.T) {
	detach(t, func(t *testing.T, d *detaching) {
		token := d.detached()
		d.hook.Store(new(fakedb.Hook(func(ctx context.Context, c *fakedb.Call) error {
			if _, moves := c.Op().(protocol.Move); moves {
				go d.c.Close(context.Background())
				time.Sleep(time.Millisecond)
			}
			return c.Do(ctx)
		})))
		assert.ErrorIs(t, require.ErrOf(d.c.Resume(t.Context(), "n", token)), ErrClosed)
	})
}

func TestResumeLooksAgainAfterAnOutage(t *testing.T) {
	detach(t, func(t *testing.T, d *detaching) {
		token := d.detached()
		var lost atomic.Int64
		d.hook.Store(new(fakedb.Hook(func(ctx context.Context, c *fakedb.Call) error {
			if c.Method == "Read" && lost.CompareAndSwap(0, 1) {
				return fakedb.ErrLost
			}
			return c.Do(ctx)
		})))
		l, err := d.c.Resume(t.Context(), "n", token)
		require.NoError(t, err)
		assert.Equal(t, lost.Load(), 1, "lost answers")
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

// Broken by a wait for the database to show the member alone, which nothing bounds.
func TestDetachOfAMemberWaitsForAWhileForATransactionOfTheApplication(t *testing.T) {
	detach(t, func(t *testing.T, d *detaching) {
		before := acquire(t, t.Context(), d.other, "n")
		var busy atomic.Bool
		d.hook.Store(new(fakedb.Hook(func(ctx context.Context, c *fakedb.Call) error {
			switch c.Op().(type) {
			case protocol.Join:
				time.Sleep(time.Millisecond) // meanwhile the others gather
			case protocol.Detach:
				if busy.Load() {
					return driver.ErrBusy
				}
			}
			return c.Do(ctx)
		})))
		locks := make(chan *Lock, 3)
		for range cap(locks) {
			go func() { locks <- acquire(t, t.Context(), d.c, "n") }()
		}
		time.Sleep(time.Second)
		require.NoError(t, before.Unlock(t.Context()))
		require.NoError(t, (<-locks).Unlock(t.Context())) // it was alone
		member := <-locks
		busy.Store(true)
		began := time.Now()
		err := member.Detach(t.Context(), time.Hour)
		if took := time.Since(began); err == nil || took > contract.CleanupTimeout || member.Context().Err() != nil {
			t.Errorf("Detach returns %v after %v, and the lock has ended: %v", err, took, member.Context().Err())
		}
		busy.Store(false)
		require.NoError(t, member.Unlock(t.Context()))
		require.NoError(t, (<-locks).Unlock(t.Context()))
	})
}

// Broken by a Detach that takes a token which is not the lock's any more for the end of the lock.
func TestALockThatARaiseRunsBesideDetachOfIsReleased(t *testing.T) {
	detach(t, func(t *testing.T, d *detaching) {
		l := acquire(t, t.Context(), d.c, "n")
		ctx, cancel := context.WithCancel(t.Context())
		var late protocol.Op
		d.hook.Store(new(fakedb.Hook(func(of context.Context, c *fakedb.Call) error {
			switch op := c.Op().(type) {
			case protocol.Raise:
				late = op
				cancel()
				return fakedb.ErrLost
			case protocol.Move:
				require.NoError(t, require.ErrOf(d.link.Run(of, late)))
			}
			return c.Do(of)
		})))
		assert.ErrorIs(t, require.ErrOf(l.Raise(ctx, l.Token()+10)), context.Canceled)
		assert.ErrorIs(t, l.Detach(t.Context(), time.Hour), ErrLost)
		d.free()
	})
}

// Broken by a release of what a session has that is not tried again.
func TestALockWhoseDetachWasNotAnsweredIsReleasedAfterALostRace(t *testing.T) {
	detach(t, func(t *testing.T, d *detaching) {
		l := acquire(t, t.Context(), d.c, "n")
		ctx, cancel := context.WithCancel(t.Context())
		var races atomic.Int64
		d.hook.Store(new(fakedb.Hook(func(of context.Context, c *fakedb.Call) error {
			_, moves := c.Op().(protocol.Move)
			switch {
			case moves:
				require.NoError(t, c.Do(of))
				cancel()
				return fakedb.ErrLost
			case c.Removes(protocol.ByTime) && races.CompareAndSwap(0, 1):
				return driver.ErrRetry
			}
			return c.Do(of)
		})))
		if err := l.Detach(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("without an answer: %v", err)
		}
		d.free()
		assert.Equal(t, races.Load(), 1, "lost races")
	})
}
