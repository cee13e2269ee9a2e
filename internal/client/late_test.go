package client

import (
	"context"
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

// The session's deadline has passed, and its alarm is late.
func TestNothingIsDoneWithALockAfterItsSessionsDeadline(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, l *Lock){
		"entered again": func(t *testing.T, l *Lock) {
			a := attempt{Client: l.client, r: &protocol.Request{Name: "n"}, owner: l.claim.Owner}
			if entered, err := a.reenter(t.Context()); entered != nil || err != nil {
				t.Errorf("entered again: %v, %v", entered, err)
			}
		},
		"unlocked": func(t *testing.T, l *Lock) {
			assert.ErrorIs(t, l.unlock(t.Context()), ErrLost, "unlocked")
			// Else a heartbeat that is answered late keeps it for nobody.
			assert.Equal(t, l.client.ledger.StateOf(l.claim), ledger.Ended, "the claim")
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Int64
				read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
				c := newPaperClient(t, newPaper(), func(c *Config) { c.Clock, c.TTL = read, 24*time.Hour })
				l := acquire(t, t.Context(), c, "n")
				synctest.Wait() // until the session has its connection
				in := l.claim.Grant.In
				now.Store(int64(in.Deadline()))
				require.NoError(t, in.Context().Err(), "the session has noticed by itself")
				do(t, l)
				c.ledger.Lose(context.Background(), session.ErrExpired, l.claim)
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
				leased := all.All()[2].claim
				now.Store(int64(min(leased.Expiry(), leased.Grant.In.Deadline())) - 1)
				require.NoError(t, all.Context().Err(), "before")
				now.Add(1)
				require.NoError(t, leased.Grant.In.Context().Err(), "the session has noticed by itself")
				assert.ErrorIs(t, context.Cause(all.Context()), ErrLost)
			})
		})
	}
}
