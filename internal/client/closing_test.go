package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/observe"
)

// endless returns an observer whose AcquireStart does not return before a channel is closed.
func endless(end chan struct{}) *observe.Observer {
	return &observe.Observer{AcquireStart: func(ctx context.Context, a observe.Attempt) context.Context {
		if a.Name == "endless" {
			<-end
		}
		return ctx
	}}
}

// Broken by a Close that waits for a call, whatever the call waits for, and by a session that ends
// when that is over.
func TestCloseReturnsAndTheSessionEndsThoughACallDoesNotEnd(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"in time": time.Hour, "with its context": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, end := newPaper(), make(chan struct{})
				c := newPaperClient(t, p, func(c *Config) { c.Observer = endless(end) })
				l := acquire(t, t.Context(), c, "n")
				got := make(chan error)
				go func() {
					_, err := c.Acquire(context.Background(), new(want("endless")), true)
					got <- err
				}()
				synctest.Wait()
				s := c.sessions.Last()
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				began := time.Now()
				err := c.Close(ctx)
				if took := time.Since(began); err == nil ||
					took > min(timeout, contract.CloseTimeout+contract.StuckTimeout) {
					t.Errorf("Close returns %v after %v", err, took)
				}
				if synctest.Wait(); s.Context().Err() == nil || l.Context().Err() == nil {
					t.Error("the session goes on")
				}
				before := p.link.Asked()
				time.Sleep(time.Hour)
				if n := p.link.Asked(); n != before {
					t.Errorf("%d statements were sent after Close", n-before)
				}
				close(end)
				assert.ErrorIs(t, <-got, ErrClosed)
				synctest.Wait()
			})
		})
	}
}
