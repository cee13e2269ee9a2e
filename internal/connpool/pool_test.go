package connpool

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const ttl = 8 * time.Second

// server counts the connections of a side pool. It ends connections that are idle for longer than
// their limit.
type server struct {
	mu     sync.Mutex
	open   map[*conn]bool
	opened int
	pings  int
	limits []time.Duration
	refuse error
}

type conn struct {
	limit  time.Duration
	last   time.Time
	broken bool
}

func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) count() (open int) {
	s.set(func() { open = len(s.open) })
	return open
}

func (s *server) pool(most int) *Pool[*conn] {
	s.open = map[*conn]bool{}
	return New(Config[*conn]{
		Most: func() int { return most },
		Open: func(ctx context.Context, limit time.Duration) (*conn, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refuse != nil {
				return nil, s.refuse
			}
			c := &conn{limit: limit, last: time.Now()}
			s.open[c] = true
			s.opened++
			s.limits = append(s.limits, limit)
			return c, nil
		},
		Ping: func(ctx context.Context, c *conn) error {
			s.set(func() { s.pings++ })
			return s.answer(ctx, c)
		},
		Close: func(c *conn) { s.set(func() { delete(s.open, c) }) },
	})
}

// answer runs a statement.
func (s *server) answer(_ context.Context, c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.broken || time.Since(c.last) >= c.limit {
		return driver.Fail(driver.ErrUnavailable, errors.New("the connection is gone"))
	}
	c.last = time.Now()
	return nil
}

func TestWithoutAClientNothingStaysOpen(t *testing.T) {
	s := &server{}
	c := s.pool(4)
	for range 3 {
		require.NoError(t, c.Do(t.Context(), s.answer))
		assert.Equal(t, s.count(), 0, "connections are open after the work")
	}
}

func TestAConnectionIsUsedAgainUntilTheLastClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(4)
		first, second := c.Attend(ttl), c.Attend(2*ttl)
		for range 5 {
			require.NoError(t, c.Do(t.Context(), s.answer))
		}
		first()
		first()
		if s.opened != 1 || s.count() != 1 {
			t.Errorf("%d opened, %d open, want 1 and 1", s.opened, s.count())
		}
		second()
		assert.Equal(t, s.count(), 0, "connections are open after the last client left")
	})
}

func TestTheLastConnectionIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(4)
		leave := c.Attend(ttl)
		defer leave()
		both := make(chan struct{})
		for range 2 {
			go func() {
				_ = c.Do(t.Context(), func(ctx context.Context, conn *conn) error {
					<-both
					return s.answer(ctx, conn)
				})
			}()
		}
		synctest.Wait()
		close(both)
		time.Sleep(10*ttl + time.Second) // no sign of life is due at this moment
		synctest.Wait()
		if s.opened != 2 || s.count() != 1 {
			t.Errorf("%d opened, %d open, want 2 and 1", s.opened, s.count())
		}
		if s.pings > 21 { // one in half a limit, and no traffic without need
			t.Errorf("%d signs of life in ten limits", s.pings)
		}
		if err := c.Do(t.Context(), s.answer); err != nil || s.opened != 2 {
			t.Errorf("%v, %d opened", err, s.opened)
		}
	})
}

func TestAConnectionThatTheServerHasEndedIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(4)
		defer c.Attend(ttl)()
		_ = c.Do(t.Context(), s.answer)
		c.mu.Lock()
		c.idle[0].since = time.Now().Add(-ttl) // the process was stopped
		c.mu.Unlock()
		tries := 0
		err := c.Do(t.Context(), func(ctx context.Context, conn *conn) error { tries++; return s.answer(ctx, conn) })
		if err != nil || tries != 1 || s.opened != 2 || s.count() != 1 {
			t.Errorf("%v after %d tries, %d opened, %d open", err, tries, s.opened, s.count())
		}
	})
}

func TestABrokenConnectionIsReplacedOnceAndWithAllThatAreIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(4)
		defer c.Attend(ttl)()
		all := make(chan struct{})
		for range 3 {
			go func() { _ = c.Do(t.Context(), func(context.Context, *conn) error { <-all; return nil }) }()
		}
		synctest.Wait()
		close(all)
		synctest.Wait()
		s.set(func() {
			for c := range s.open {
				c.broken = true
			}
		})
		tries := 0
		err := c.Do(t.Context(), func(ctx context.Context, conn *conn) error { tries++; return s.answer(ctx, conn) })
		if err != nil || tries != 2 || s.count() != 1 {
			t.Errorf("%v after %d tries, %d open", err, tries, s.count())
		}
		tries = 0
		err = c.Do(t.Context(), func(context.Context, *conn) error { tries++; return driver.ErrUnavailable })
		if !errors.Is(err, driver.ErrUnavailable) || tries != 2 || s.count() != 0 {
			t.Errorf("%v after %d tries, %d open", err, tries, s.count())
		}
	})
}

func TestWorkThatWasCutOffLeavesNoConnectionBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(1)
		defer c.Attend(ttl)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Do(ctx, func(ctx context.Context, _ *conn) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || s.count() != 0 {
			t.Errorf("%v, %d open", err, s.count())
		}
		err = c.Do(t.Context(), func(context.Context, *conn) error { return driver.ErrNotHeld })
		if !errors.Is(err, driver.ErrNotHeld) || s.count() != 1 {
			t.Errorf("%v, %d open: an answer keeps the connection", err, s.count())
		}
	})
}

func TestNoMoreConnectionsThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(2)
		defer c.Attend(ttl)()
		on := make(chan struct{})
		for range 5 {
			go func() { _ = c.Do(t.Context(), func(context.Context, *conn) error { <-on; return nil }) }()
		}
		synctest.Wait()
		assert.Equal(t, s.count(), 2, "open")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, c.Do(ctx, s.answer), context.DeadlineExceeded)
		close(on)
		synctest.Wait()
		assert.Equal(t, s.opened, 2, "opened")
	})
}

func TestAConnectionIsSetUpForTheShortestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(2)
		long, reaper := c.Attend(4*ttl), c.Attend(0)
		_ = c.Do(t.Context(), s.answer)
		short := c.Attend(ttl)
		_ = c.Do(t.Context(), s.answer) // on the connection of the client with the longer TTL, which is not kept
		_ = c.Do(t.Context(), s.answer)
		if len(s.limits) != 2 || s.limits[0] != 4*ttl || s.limits[1] != ttl || s.count() != 1 {
			t.Errorf("set up for %v, %d open", s.limits, s.count())
		}
		long()
		short()
		reaper()
	})
}

func TestAWarmPoolHasAConnectionBeforeItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(2)
		c.Warm() // no client attends yet
		leave := c.Attend(ttl)
		synctest.Wait()
		assert.Equal(t, s.count(), 1, "open")
		leave()
		assert.Equal(t, s.count(), 0, "open after the client left")
	})
}

func TestWorkThatMayHaveBeenDoneIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := s.pool(1)
		defer c.Attend(ttl)()
		_ = c.Do(t.Context(), s.answer) // a connection that is kept
		tries := 0
		err := c.Do(t.Context(), func(context.Context, *conn) error {
			tries++
			return Sent{driver.Fail(driver.ErrUnavailable, errors.New("no answer to COMMIT"))}
		})
		if !errors.Is(err, driver.ErrUnavailable) || tries != 1 || s.count() != 0 {
			t.Errorf("%v after %d tries, %d open", err, tries, s.count())
		}
	})
}
