package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestALockThatIsLostWhileItIsUnlockedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		h := acquire(t, t.Context(), c, "n").hold
		if !c.ledger.EndBy(h, ledger.Lose) {
			t.Fatal("it was not held")
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- c.unlock(t.Context(), h) }()
		synctest.Wait()
		c.ledger.End(h, fmt.Errorf("dblock: %w", lost(errDisowned)))
		assert.ErrorIs(t, <-unlocked, ErrLost, "unlocked")
	})
}

// The session's deadline has passed, and its alarm is late.
func TestNothingIsDoneWithALockAfterItsSessionsDeadline(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, c *Client, h *ledger.Hold){
		"entered again": func(t *testing.T, c *Client, h *ledger.Hold) {
			if entered, err := c.reenter(t.Context(), &protocol.Request{Name: "n"}, h.Owner); entered != nil ||
				err != nil {
				t.Errorf("entered again: %v, %v", entered, err)
			}
		},
		"unlocked": func(t *testing.T, c *Client, h *ledger.Hold) {
			assert.ErrorIs(t, c.unlock(t.Context(), h), ErrLost, "unlocked")
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Int64
				read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
				c := newPaperClient(t, newPaper(), func(c *Config) { c.Clock, c.TTL = read, 24*time.Hour })
				h := acquire(t, t.Context(), c, "n").hold
				synctest.Wait() // until the session has its connection
				now.Store(int64(h.In.Deadline()))
				require.NoError(t, h.In.Context().Err(), "the session has noticed by itself")
				do(t, c, h)
				c.ledger.Lose(session.ErrExpired, h)
			})
		})
	}
}

// Broken by a context that only a timer ends, and by one that asks no lock but the first.
func TestTheContextOfSeveralLocksEndsByTheClockOfEach(t *testing.T) {
	const ttl = 24 * time.Hour
	for first, lease := range map[string]time.Duration{"the lease of one": ttl / 2, "the session": 2 * ttl} {
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Int64
				read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
				c := newPaperClient(t, newPaper(), func(c *Config) { c.Clock, c.TTL = read, ttl })
				wants := []Want{want("a"), want("b"), want("c")}
				wants[2].Lease = lease
				all, _, err := c.AcquireAll(t.Context(), wants, true)
				require.NoError(t, err)
				synctest.Wait() // until the session has its connection
				leased := all.All()[2].hold
				now.Store(int64(min(leased.Expiry(), leased.In.Deadline())) - 1)
				require.NoError(t, all.Context().Err(), "before")
				now.Add(1)
				require.NoError(t, leased.In.Context().Err(), "the session has noticed by itself")
				assert.ErrorIs(t, context.Cause(all.Context()), ErrLost)
			})
		})
	}
}
