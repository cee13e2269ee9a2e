package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

func TestCrashDetectionSendsNoStatementWhileAllLive(t *testing.T) {
	for what, do := range map[string]func(t *testing.T, c *Client){
		"a held lock": func(t *testing.T, c *Client) {
			l := acquire(t, t.Context(), c, "free")
			time.Sleep(10 * c.TTL())
			release(t, l)
		},
		"a waiter": func(t *testing.T, c *Client) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*c.TTL())
			defer cancel()
			assert.ErrorIs(t, assert.ErrOf(c.Acquire(ctx, new(want("held")), true)), ErrNotAcquired)
		},
		"tries that are refused": func(t *testing.T, c *Client) {
			for range 100 {
				time.Sleep(time.Second)
				assert.ErrorIs(t, assert.ErrOf(c.Acquire(t.Context(), new(want("held")), false)), ErrNotAcquired)
			}
		},
		"an idle client": func(t *testing.T, c *Client) {
			release(t, acquire(t, t.Context(), c, "free"))
			time.Sleep(2 * idleTTLs * c.TTL())
		},
	} {
		t.Run(what, func(t *testing.T) {
			asked := func(off bool) (n int64) {
				synctest.Test(t, func(t *testing.T) {
					p := newPaper()
					p.host = t.TempDir()
					var calls atomic.Int64
					p.before = func(c *fakedb.Call) error {
						if !c.Beats() {
							calls.Add(1)
						}
						return nil
					}
					acquire(t, t.Context(), newPaperClient(t, p, nil), "held")
					do(t, newPaperClient(t, p, func(c *Config) { c.Crash.Off = off }))
					n = calls.Load()
				})
				return n
			}
			// What a client sends every few heartbeats comes at random times.
			if with, without := asked(false), asked(true); max(with-without, without-with) > 5 {
				t.Errorf("%d calls of the database, and %d without crash detection", with, without)
			}
		})
	}
}
