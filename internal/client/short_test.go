package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// contended is a database whose statements for a place in the queue wait, for as long as it is so,
// and so do all statements while it is silent. Heartbeats are answered.
type contended struct{ joins, silent atomic.Bool }

func (d *contended) hook(ctx context.Context, c *fakedb.Call) error {
	_, joins := c.Op().(protocol.Join)
	if d.silent.Load() && !c.Beats() && c.Method != "Listen" || joins && d.joins.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.Do(ctx)
}

// Broken by a first look that comes after the end of a short wait, by a look that only those with a
// place in the queue get, and by a state from before the request.
func TestAShortWaitForALockThatIsHeldNamesItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, d := newPaper(), &contended{}
		var shown atomic.Value // the session of the holder, as the last error shows it
		c := newPaperClient(t, fakedb.Hooked(p, d.hook), func(config *Config) {
			config.NotAcquired = func(state driver.State, _ bool, cause error) error {
				shown.Store(state.Holder.Session)
				return driver.Join(ErrNotAcquired, cause)
			}
		})
		held, other := want("n"), want("other")
		l, err := newPaperClient(t, p, nil).Acquire(t.Context(), &held, true)
		require.NoError(t, err)
		_, err = c.Acquire(t.Context(), &other, true) // it has a session
		require.NoError(t, err)
		holder, _, _ := l.Holder()
		try := func(wait time.Duration, options ...func(w *Want)) error {
			w := want("n")
			w.AtMost = wait
			shown.Store("")
			for _, option := range options {
				option(&w)
			}
			_, err := c.Acquire(t.Context(), &w, true)
			return err
		}
		named := func(says string, err error) {
			t.Helper()
			if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, driver.ErrUnavailable) || shown.Load() != holder {
				t.Errorf("%s: %v, held by session %q, not %q", says, err, shown.Load(), holder)
			}
		}
		for _, wait := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond} {
			named("it has a place in the queue", try(wait))
			d.joins.Store(true)
			named("its request waits in the database", try(wait))
			named("the client knows that others wait", try(wait))
			named("a request with metadata waits alone", try(wait, func(w *Want) { w.Metadata = `{"k":"v"}` }))
			named("a reader waits alone", try(wait, func(w *Want) { w.Units = 1 }))
			d.joins.Store(false)
		}
		go func() { _ = try(time.Hour) }() // it reads the name
		time.Sleep(time.Minute)
		d.silent.Store(true)
		if err := try(300 * time.Millisecond); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a database that is silent: %v", err)
		}
		d.silent.Store(false)
	})
}
