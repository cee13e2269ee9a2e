package client

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

var quiet = outage.New(slog.New(slog.DiscardHandler), "")

// silent is a database that answers nothing after a session was opened.
type silent struct{}

func (silent) OpenSession(context.Context, driver.Session) error { return nil }

func (silent) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Beat(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (silent) OnSideConn(ctx context.Context, _ func(context.Context, driver.Upkeep) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// ttl: nobody but the test looks at the clock while it runs.
const ttl = 24 * time.Hour

// aliveSession is a session until the test ends.
func aliveSession(t *testing.T, c clock.Clock) *store.Session {
	s, err := session.Open(t.Context(), silent{}, session.Config{TTL: ttl, Clock: c, Beating: quiet, Connecting: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(ErrClosed) })
	return &store.Session{Session: s}
}

// Broken by a grant that is relied upon although its attempt is being undone.
func TestAGrantOfAnAttemptThatWasAbandonedIsNotHeld(t *testing.T) {
	c := New(newPaper(), Config{Clock: clock.Func(func() time.Duration { return 0 }), Log: slog.New(slog.DiscardHandler)})
	k := c.registry.request("n", "a")
	c.registry.transition(k, abandon)
	h := &hold{attempt: k}
	h.mode.Store(&mode{token: 7})
	if _, _, added := c.registry.add(h, func() bool { return true }); added || c.registry.held("a") != nil {
		t.Error("it is held")
	}
}

func TestAGrantAfterTheSessionsDeadlineIsNotHeld(t *testing.T) {
	var now atomic.Int64
	read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
	by := aliveSession(t, read)
	c := New(newPaper(), Config{Clock: read, TTL: ttl, Log: slog.New(slog.DiscardHandler)})
	rely := func(name, attempt string, token int64) bool {
		k := c.registry.request(name, attempt)
		_, held := c.rely(t.Context(), by, k, &driver.Request{Name: name, Attempt: attempt}, Owner{}, &receipt{Answer: store.Answer{Grant: driver.Grant{Token: token}, Asked: read()}})
		return held
	}
	now.Store(int64(by.Deadline() - 1))
	if !rely("in time", "a", 1) {
		t.Error("a grant before the deadline is not held")
	}
	now.Store(int64(by.Deadline()))
	if by.Context().Err() != nil {
		t.Fatal("the session has noticed by itself")
	}
	if rely("late", "b", 2) {
		t.Error("a grant after the deadline is held")
	}
}

func TestALockThatIsLostWhileItIsUnlockedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		still := clock.Func(func() time.Duration { return 0 })
		c := New(newPaper(), Config{Clock: still, Log: slog.New(slog.DiscardHandler)})
		h := &hold{attempt: &attempt{name: "n", id: "a"}, in: aliveSession(t, still), entries: 1}
		h.mode.Store(&mode{token: 7})
		h.ctx, h.cancel = context.WithCancelCause(t.Context())
		if _, _, added := c.registry.add(h, func() bool { return true }); !added || !c.registry.take(h, lose) {
			t.Fatal("it was not held")
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- c.unlock(t.Context(), h) }()
		synctest.Wait()
		c.end(h, h.gone(errDisowned).cause)
		if err := <-unlocked; !errors.Is(err, ErrLost) {
			t.Errorf("unlocked: %v", err)
		}
	})
}

func TestAFixedLeaseIsCountedFromTheQuestionWithAMargin(t *testing.T) {
	// Asked at 100 s, answered at 101 s. The server may have granted it at 100 s, by a clock that
	// is 1 % faster.
	end := leaseEnd(10*time.Second, 100*time.Second, 101*time.Second)
	if want := 110*time.Second - 100*time.Millisecond - 2*time.Second; end != want {
		t.Errorf("it ends at %v, want %v", end, want)
	}
}

// The session's deadline has passed, and nobody has noticed: its alarm is late.
func TestNothingIsDoneWithALockAfterItsSessionsDeadline(t *testing.T) {
	for what, do := range map[string]func(c *Client, h *hold){
		"entered again": func(c *Client, h *hold) {
			if entered, err := c.reenter(t.Context(), &driver.Request{Name: "n"}, h.owner); entered != nil || err != nil {
				t.Errorf("entered again: %v, %v", entered, err)
			}
		},
		"unlocked": func(c *Client, h *hold) {
			if err := c.unlock(t.Context(), h); !errors.Is(err, ErrLost) {
				t.Errorf("unlocked: %v", err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			var now atomic.Int64
			read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
			p := newPaper()
			c := newPaperClient(t, p, func(config *Config) { config.Clock = read })
			in := aliveSession(t, read)
			grant, taken, err := drivertest.Take(t.Context(), p, driver.Request{Name: "n", Session: in.ID, Attempt: "a"})
			if !taken || err != nil {
				t.Fatal(taken, err)
			}
			h, held := c.rely(t.Context(), in, c.registry.request("n", "a"), &driver.Request{Name: "n", Attempt: "a"}, Owner{}, &receipt{Answer: store.Answer{Grant: grant}})
			if !held {
				t.Fatal("it is not held")
			}
			now.Store(int64(in.Deadline()))
			if in.Context().Err() != nil {
				t.Fatal("the session has noticed by itself")
			}
			do(c, h)
			c.lose(h, session.ErrExpired)
		})
	}
}
