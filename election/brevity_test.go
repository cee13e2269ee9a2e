package election

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// Broken by a candidate that stands again at once: its terms fill the history.
func TestAFunctionThatReturnsAtOnceLeadsMoreAndMoreRarely(t *testing.T) {
	for name, campaign := range map[string]func(
		e *Elections, ctx context.Context, fn func(context.Context, *Term) error,
	) error{
		"Campaign": func(e *Elections, ctx context.Context, fn func(context.Context, *Term) error) error {
			return e.Campaign(ctx, "n", fn)
		},
		"Shares": func(e *Elections, ctx context.Context, fn func(context.Context, *Term) error) error {
			return e.Shares(ctx, "n", 1, func(ctx context.Context, _ int, t *Term) error { return fn(ctx, t) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(dblocktest.New[*sql.Tx](t).Client)
				var mu sync.Mutex // protects terms
				var terms []time.Time
				var lasts atomic.Int64
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- campaign(e, ctx, func(context.Context, *Term) error {
						mu.Lock()
						terms = append(terms, time.Now())
						mu.Unlock()
						time.Sleep(time.Duration(lasts.Load()))
						return nil
					})
				}()
				time.Sleep(time.Minute)
				mu.Lock()
				if n := len(terms); n < 8 || n > 25 {
					t.Errorf("%d terms in a minute: want 8 to 25", n)
				}
				if early := terms[2].Sub(terms[0]); early > 500*time.Millisecond {
					t.Errorf("the third term began after %v", early)
				}
				mu.Unlock()
				lasts.Store(int64(2 * time.Second)) // the next one resets the pause
				time.Sleep(30 * time.Second)
				lasts.Store(0)
				time.Sleep(3 * time.Second)
				mu.Lock()
				last := terms[len(terms)-2:]
				if between := last[1].Sub(last[0]); between > 2*time.Second {
					t.Errorf("after a term that lasted, the next brief one was followed %v later", between)
				}
				mu.Unlock()
				cancel()
				assert.NoError(t, <-ended)
			})
		})
	}
}
