package client

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// lockFor calls Lock in the background, and unlocks after a hold.
func lockFor(t *testing.T, ctx context.Context, c *Client, hold time.Duration) {
	go func() {
		if l, err := c.Acquire(ctx, new(want("n")), true); err == nil {
			time.Sleep(hold)
			assert.NoError(t, l.Unlock(context.Background()))
		}
	}()
	synctest.Wait()
}

// Broken by a line for each look, by a line for a wait that ends by itself, and by silence.
func TestAWaitWithoutAnEndForAnOwnLockIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &written{}
		c := newPaperClient(t, newPaper(), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(w, nil)) })
		held := acquire(t, t.Context(), c, "n")
		bounded, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		lockFor(t, bounded, c, 0)
		lockFor(t, t.Context(), c, 0)
		lockFor(t, t.Context(), c, 0)
		time.Sleep(14 * time.Second)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("within a TTL: %q", lines)
		}
		time.Sleep(10 * time.Second)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") ||
			!strings.Contains(lines[0], "under its Context") || !strings.Contains(lines[0], "waiting=2") {
			t.Errorf("of two waits: %q", lines)
		}
		lockFor(t, t.Context(), c, 0)
		time.Sleep(time.Minute)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], "waiting=1") {
			t.Errorf("of a third: %q", lines)
		}
		assert.NoError(t, held.Unlock(t.Context()))
		for range 9 { // a queue that moves
			lockFor(t, t.Context(), c, 10*time.Second)
		}
		time.Sleep(2 * time.Minute)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("of a queue that moves: %q", lines)
		}
	})
}

func TestAWaitWithoutAnEndForATransactionIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := &written{}, newPaper()
		var open, silent atomic.Bool
		c := newPaperClient(t, fakedb.Hooked(p, func(ctx context.Context, c *fakedb.Call) error {
			switch {
			case c.Method == "Run" && silent.Load(): // a try without an answer
				<-ctx.Done()
				return ctx.Err()
			case c.Method == "Run" && open.Load():
				return driver.ErrBusy
			}
			return c.Do(ctx)
		}), func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(w, nil))
			c.NotAcquired = func(_ driver.State, _ bool, cause error) error {
				return driver.Join(ErrNotAcquired, cause)
			}
		})
		open.Store(true)
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Acquire(bounded, new(want("n")), true)
		if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), openTransaction) {
			t.Errorf("%v: want the transaction", err)
		}
		bounded, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(55*time.Second, func() { silent.Store(true) })
		_, err = c.Acquire(bounded, new(want("n")), true)
		if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), openTransaction) {
			t.Errorf("of a last try without an answer: %v: want the transaction", err)
		}
		silent.Store(false)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("with a deadline: %q", lines)
		}
		lockFor(t, t.Context(), c, 0)
		time.Sleep(14 * time.Second)
		if lines := w.lines(); len(lines) > 0 {
			t.Errorf("within a TTL: %q", lines)
		}
		time.Sleep(time.Minute)
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], openTransaction) {
			t.Errorf("of a wait: %q", lines)
		}
		open.Store(false)
		time.Sleep(time.Second)
	})
}

// busy is how a database answers each request for a name.
type busy struct {
	run  func(n int) error            // to the nth request
	read func(n int, s *driver.State) // changes what the nth look shows
}

// Broken by an error that calls every locked row an open transaction's.
func TestATryLockSaysWhoHadTheRow(t *testing.T) {
	locked := func(commit string) error {
		return driver.Fail(driver.ErrBusy, &driver.Locked{Commit: commit, Cause: errors.New("locked")})
	}
	still := func(int) error { return driver.ErrBusy }
	for what, test := range map[string]struct {
		busy
		transaction bool
	}{
		"one transaction":                         {busy{run: still}, true},
		"one transaction that locks the database": {busy{run: func(int) error { return locked("1") }}, true},
		"others in turn": {busy{
			run: still, read: func(n int, s *driver.State) { s.Token = int64(n) },
		}, false},
		"others that change the database": {busy{
			run: func(n int) error { return locked(strings.Repeat("1", n)) },
		}, false},
		"lost races": {busy{run: func(int) error { return driver.ErrRetry }}, false},
		"a transaction that came late": {busy{run: func(n int) error {
			if n < 4 {
				return driver.ErrRetry
			}
			return driver.ErrBusy
		}}, false},
		"a database that is not known": {busy{run: func(int) error { return locked("") }}, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, reads := 0, 0
				c := newPaperClient(t, fakedb.Hooked(newPaper(), func(ctx context.Context, c *fakedb.Call) error {
					switch c.Method {
					case "Run":
						runs++
						return test.run(runs)
					case "Read":
						reads++
						err := c.Do(ctx)
						if len(c.States) == 0 {
							c.States = []driver.State{{Name: "n"}}
						}
						if test.read != nil {
							test.read(reads, &c.States[0])
						}
						return err
					}
					return c.Do(ctx)
				}), func(c *Config) {
					c.NotAcquired = func(_ driver.State, _ bool, cause error) error {
						return driver.Join(ErrNotAcquired, cause)
					}
				})
				time.Sleep(time.Second) // at 0 the clock shows no time
				_, err := c.Acquire(t.Context(), new(want("n")), false)
				text := errBusyName.Error()
				if test.transaction {
					text = openTransaction
				}
				if !errors.Is(err, ErrNotAcquired) || errors.Is(err, driver.ErrBusy) != test.transaction ||
					!strings.Contains(err.Error(), text) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
