package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// diary is an observer that writes down what it is told.
type diary struct {
	mu    sync.Mutex // protects lines
	lines []string
}

type mark struct{}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// told returns what it was told since the last call.
func (d *diary) told() (lines []string) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines, d.lines = d.lines, nil
	return lines
}

// kind is the error that the tests look for.
func kind(err error) error {
	for _, kind := range []error{ErrNotAcquired, ErrLost, ErrClosed, ErrInvalidOption} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

func (d *diary) observer() *observe.Observer {
	return &observe.Observer{
		AcquireStart: func(ctx context.Context, a observe.Attempt) context.Context {
			d.add("start %s %t", a.Name, a.Wait)
			return context.WithValue(ctx, mark{}, a.Name)
		},
		AcquireEnd: func(ctx context.Context, a observe.Attempt, r observe.AcquireResult) {
			d.add("end %s %d %v under %v after %v", a.Name, r.Token, kind(r.Err), ctx.Value(mark{}), r.Took)
		},
		HoldEnd:  func(r observe.HoldResult) { d.add("over %s %d %v after %v", r.Name, r.Token, kind(r.Err), r.Held) },
		Listener: func(up bool, err error) { d.add("listener %t %v", up, err) },
	}
}

func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := d.told(); !slices.Equal(got, want) {
		t.Errorf("told %q: want %q", got, want)
	}
}

// observed runs a test in fake time.
func observed(t *testing.T, f func(t *testing.T, p *paper, d *diary, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		p, d := newPaper(), &diary{}
		f(t, p, d, newPaperClient(t, p, func(c *Config) { c.Observer = d.observer() }))
		synctest.Wait()
	})
}

func want(name string) (w Want) {
	w.Name = name
	return w
}

func acquire(t *testing.T, ctx context.Context, c *Client, name string) *Lock {
	t.Helper()
	l, err := c.Acquire(ctx, new(want(name)), true)
	require.NoError(t, err)
	return l
}

func TestAnObserverIsToldOfEachAttemptAndOfEachHold(t *testing.T) {
	observed(t, func(t *testing.T, p *paper, d *diary, c *Client) {
		l := acquire(t, t.Context(), c, "n")
		if got := l.Context().Value(mark{}); got != "n" {
			t.Errorf("the lock's context has %v of the observer's", got)
		}
		time.Sleep(time.Second)
		again := acquire(t, l.Context(), c, "n")
		synctest.Wait()
		_, err := c.Acquire(t.Context(), new(want("n")), false)
		assert.ErrorIs(t, err, ErrNotAcquired)
		for _, l := range []*Lock{again, l, l} {
			assert.NoError(t, l.Unlock(t.Context()))
		}
		d.expect(t, "start n true", "end n 1 <nil> under n after 0s", "start n true", "end n 1 <nil> under n after 0s",
			"start n false", "end n 0 not acquired under n after 0s", "over n 1 <nil> after 1s")

		l = acquire(t, t.Context(), c, "m")
		synctest.Wait()
		go func() { _, _ = c.Acquire(t.Context(), new(want("m")), true) }()
		time.Sleep(3 * time.Second)
		if s := c.Stats(); s.Held != 1 || s.Waiting != 1 || !s.Listening || s.Session == "" ||
			time.Until(s.AliveUntil) < 10*time.Second {
			t.Errorf("%+v", s)
		}
		assert.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		got := d.told()
		slices.Sort(got[min(4, len(got)):]) // the next holder may be told of first
		if !slices.Equal(got, []string{"start m true", "end m 2 <nil> under m after 0s", "start m true",
			"listener true <nil>",
			"end m 3 <nil> under m after 3s", "over m 2 <nil> after 3s"}) {
			t.Errorf("%q", got)
		}
		assert.NoError(t, c.Close(t.Context()))
		synctest.Wait()
		if got = d.told(); !slices.Contains(got, "over m 3 the client is closed after 0s") ||
			!slices.Contains(got, "listener false the client is closed") || len(got) != 2 {
			t.Errorf("at the end: %q", got)
		}
		assert.Equal(t, c.Stats(), (Stats{}))
		if _, err = c.Acquire(t.Context(), new(want("n")), true); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		d.expect(t)
	})
}

func TestAnObserverIsToldOfEachNameOfSeveral(t *testing.T) {
	observed(t, func(t *testing.T, p *paper, d *diary, c *Client) {
		wants := []Want{want("a"), want("b"), want("c")}
		all, _, err := c.AcquireAll(t.Context(), wants, true)
		require.NoError(t, err)
		for _, l := range all.All() {
			if got := l.Context().Value(mark{}); got != l.Name() {
				t.Errorf("the context of %s has %v of the observer's", l.Name(), got)
			}
		}
		all.Unlock(t.Context())
		got := d.told()
		slices.Sort(got[6:]) // a map goes over them
		if !slices.Equal(got, []string{"start a true", "start b true", "start c true", "end a 1 <nil> under a after 0s",
			"end b 2 <nil> under b after 0s", "end c 3 <nil> under c after 0s", "over a 1 <nil> after 0s",
			"over b 2 <nil> after 0s",
			"over c 3 <nil> after 0s"}) {
			t.Errorf("%q", got)
		}
		b := acquire(t, t.Context(), c, "b")
		d.told()
		if _, _, err := c.AcquireAll(t.Context(), wants, false); !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
		d.expect(t, "start a false", "start b false", "start c false", "end a 5 <nil> under a after 0s",
			"end b 0 not acquired under b after 0s", "end c 0 not acquired under c after 0s", "over a 5 <nil> after 0s")
		assert.NoError(t, b.Unlock(t.Context()))
	})
}

// Broken by telling of the end of a hold as soon as it ends.
func TestAHoldThatEndsBeforeItIsToldOfEndsAfterThat(t *testing.T) {
	observed(t, func(t *testing.T, p *paper, d *diary, c *Client) {
		w := want("n")
		ctx, obs := c.report.start(t.Context(), attemptAt(&w.Request, true))
		a := attempt{Client: c, r: &w.Request, owner: c.owners.Of(ctx, nil), wait: true}
		h, err := a.acquire(ctx)
		require.NoError(t, err)
		c.ledger.Lose(context.Background(), ledger.ErrDisowned, h)
		d.expect(t, "start n true")
		l := c.handle(h, obs, false)
		d.expect(t, "end n 1 <nil> under n after 0s", "over n 1 lost after 0s")
		assert.ErrorIs(t, l.Unlock(t.Context()), ErrLost)
		d.expect(t)
	})
}

func TestAnObserverIsToldOfALossOnce(t *testing.T) {
	observed(t, func(t *testing.T, p *paper, d *diary, c *Client) {
		l := acquire(t, t.Context(), c, "n")
		p.leave()
		<-l.Context().Done()
		assert.ErrorIs(t, l.Unlock(t.Context()), ErrLost)
		synctest.Wait()
		got := d.told()
		if len(got) != 3 || got[2] != "over n 1 lost after 14.85s" {
			t.Errorf("%q", got)
		}
		p.comeBack()

		l = acquire(t, t.Context(), c, "n2")
		p.Locks.Delete("n2")
		if err := l.Unlock(t.Context()); !errors.Is(err, ErrLost) { // which finds it out
			t.Error(err)
		}
		d.expect(t, "start n2 true", "end n2 2 <nil> under n2 after 0s", "over n2 2 lost after 0s")
	})
}

func TestAnUnlockThatIsTriedAgainIsToldOnce(t *testing.T) {
	observed(t, func(t *testing.T, p *paper, d *diary, c *Client) {
		l := acquire(t, t.Context(), c, "n")
		p.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, l.Unlock(ctx), errAway)
		p.comeBack()
		assert.NoError(t, l.Unlock(t.Context()))
		d.expect(t, "start n true", "end n 1 <nil> under n after 0s", "over n 1 <nil> after 1s")
	})
}

// stalling is a database that fails releases of several locks, when it is let go.
type stalling struct {
	*paper
	gate chan struct{}
}

func (s stalling) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if _, releases := ops[0].(protocol.Removal); !releases || len(ops) == 1 {
		return s.paper.Run(ctx, ops...)
	}
	<-s.gate
	return nil, errAway
}

func TestLocksThatCannotBeUnlockedBeforeCloseAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := stalling{newPaper(), make(chan struct{})}, &diary{}
		c := newPaperClient(t, s, func(c *Config) { c.Observer = d.observer() })
		all, _, err := c.AcquireAll(t.Context(), []Want{want("a"), want("b")}, true)
		require.NoError(t, err)
		d.told()
		unlocked, closed := make(chan []error, 1), make(chan error, 1)
		go func() { unlocked <- all.Unlock(t.Context()) }()
		synctest.Wait()
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		close(s.gate)
		for _, err := range <-unlocked {
			assert.ErrorIs(t, err, ErrClosed)
		}
		assert.NoError(t, <-closed)
		got := d.told()
		slices.Sort(got)
		if !slices.Equal(got, []string{"over a 1 the client is closed after 0s",
			"over b 2 the client is closed after 0s"}) {
			t.Errorf("told %q", got)
		}
	})
}
