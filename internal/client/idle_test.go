package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// idleTTLs is how many TTLs a session outlives its last use, as in package store.
const idleTTLs = 4

// idling is a client in a bubble that records, reaps and listens, and what its database was asked.
func idling(t *testing.T, f func(t *testing.T, p *paper, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		f(t, p, newPaperClient(t, p, func(c *Config) { c.Events, c.Reap = true, true }))
	})
}

func release(t *testing.T, l *Lock) {
	t.Helper()
	assert.NoError(t, l.Unlock(t.Context()))
}

func TestAnIdleClientSendsNothingAndTheNextLockOpensASession(t *testing.T) {
	idling(t, func(t *testing.T, p *paper, c *Client) {
		for range 2 {
			l := acquire(t, t.Context(), c, "n")
			c.sessions.Last().Waiters().Listen()
			was := c.Stats().Session
			release(t, l)
			time.Sleep(idleTTLs*c.TTL() - time.Second)
			if is := c.Stats().Session; is == "" || is != was {
				t.Errorf("the session is %q, and was %q", is, was)
			}
			if n := p.attending.Load(); n != 1 {
				t.Errorf("the engine keeps connections for %d clients, want this one", n)
			}
			time.Sleep(2 * c.TTL())
			assert.Equal(t, p.attending.Load(), 0, "the engine keeps connections for an idle client")
			before := p.link.Asked()
			time.Sleep(1000 * c.TTL())
			if is, n := c.Stats().Session, p.link.Asked()-before; is != "" || n != 0 {
				t.Errorf("session %q, and %d statements of an idle client", is, n)
			}
		}
		if p.opened.Load() != 2 || p.ended.Load() != 2 {
			t.Errorf("%d sessions opened and %d ended, want 2 of each", p.opened.Load(), p.ended.Load())
		}
	})
}

func TestAClientThatIsInUseIsNotIdle(t *testing.T) {
	for use, of := range map[string]func(t *testing.T, p *paper, c *Client) (end func()){
		"it holds a lock": func(t *testing.T, p *paper, c *Client) func() {
			l := acquire(t, t.Context(), c, "n")
			return func() { release(t, l) }
		},
		"it waits for a lock": func(t *testing.T, p *paper, c *Client) func() {
			other := newPaperClient(t, p, nil)
			l := acquire(t, t.Context(), other, "n")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.Acquire(ctx, new(want("n")), true)
			}()
			return func() { cancel(); <-done; release(t, l) }
		},
		"it watches a name": func(t *testing.T, p *paper, c *Client) func() {
			release(t, acquire(t, t.Context(), c, "n")) // opens the session
			hub := c.sessions.Last().Waiters()
			w := hub.Watch("n", "watch")
			return func() { hub.Unwatch(w) }
		},
		"it locks now and then": func(t *testing.T, p *paper, c *Client) func() {
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					release(t, acquire(t, t.Context(), c, "n"))
					select {
					case <-stop:
						return
					case <-time.After(3 * c.TTL()):
					}
				}
			}()
			return func() { close(stop); <-done }
		},
	} {
		t.Run(use, func(t *testing.T) {
			idling(t, func(t *testing.T, p *paper, c *Client) {
				end := of(t, p, c)
				defer end()
				time.Sleep(time.Second)
				was := c.Stats().Session
				time.Sleep(20*c.TTL() + time.Second)
				if is := c.Stats().Session; is == "" || is != was {
					t.Errorf("the session is %q, and was %q", is, was)
				}
			})
		})
	}
}

// Broken by a session that ends below a call that may be about to ask for something in it.
func TestASessionOutlivesTheCallsThatUseIt(t *testing.T) {
	idling(t, func(t *testing.T, p *paper, c *Client) {
		release(t, acquire(t, t.Context(), c, "n"))
		require.NoError(t, c.store.Begin())
		time.Sleep(20 * c.TTL())
		if c.Stats().Session == "" {
			t.Error("the session has ended below a call")
		}
		c.store.Done()
		time.Sleep((idleTTLs + 2) * c.TTL())
		assert.Equal(t, c.Stats().Session, "", "the session has not ended")
	})
}

func TestTheOldestHoldIsThatOfAHolderWhomNobodyWatches(t *testing.T) {
	idling(t, func(t *testing.T, p *paper, c *Client) {
		w := want("watched")
		w.Progress = time.Hour
		watched, err := c.Acquire(t.Context(), &w, true)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		if s := c.Stats(); s.OldestHold != 0 || s.Held != 1 {
			t.Errorf("%+v", s)
		}
		old := acquire(t, t.Context(), c, "old")
		time.Sleep(time.Minute)
		young := acquire(t, t.Context(), c, "young")
		time.Sleep(time.Second)
		if s := c.Stats(); s.OldestHold != time.Minute+time.Second || s.Held != 3 {
			t.Errorf("%+v", s)
		}
		release(t, old)
		if s := c.Stats(); s.OldestHold != time.Second {
			t.Errorf("%+v", s)
		}
		release(t, young)
		release(t, watched)
	})
}

// Broken by a client of a program that a signal ends: its session would be left to the reaper.
func TestCloseWithAContextThatHasEndedReleasesAllTheSame(t *testing.T) {
	idling(t, func(t *testing.T, p *paper, c *Client) {
		acquire(t, t.Context(), c, "n")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, c.Close(ctx))
		if row, _ := p.Locks.Row("n"); row.Session != "" || p.ended.Load() != 1 {
			t.Errorf("held by %q, %d sessions ended", row.Session, p.ended.Load())
		}
	})
}
