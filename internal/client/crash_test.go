//go:build linux || darwin || freebsd

package client

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
)

const (
	atOnce    = 300 * time.Millisecond // at most, from the end of a process to the next grant
	hostEnded = "its process ended on host"
)

// host is a host on which two processes use one database. A test ends the first one by kill.
func host(t *testing.T, f func(t *testing.T, p *paper, first, second *Client)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		p.host = filepath.Join(t.TempDir(), "host")
		first := newPaperClient(t, p, nil)
		f(t, p, first, newPaperClient(t, p, func(c *Config) { c.Events = true }))
		time.Sleep(first.TTL()) // the first one finds that it is dead
	})
}

// kill ends the process of a client, as far as others on its host can see.
func kill(c *Client) { _ = c.sessions.Last().Life.File().Close() }

// proofs are the files in the folder of the host by which processes are seen to live.
func (p *paper) proofs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.host, "*.alive"))
	require.NoError(t, err)
	return files
}

// burials is how many sessions were buried.
func (p *paper) burials() (n int) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for _, s := range p.SessionRows {
		if s.Buried == hostEnded {
			n++
		}
	}
	return n
}

func (c *Client) tryLock(t *testing.T, name string, units, of int) (*Lock, error) {
	w := want(name)
	w.Units, w.Of = units, of
	return c.Acquire(t.Context(), &w, false)
}

func TestAWaiterSucceedsAProcessThatHasEndedOnItsHost(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		lost := acquire(t, t.Context(), first, "n")
		granted := make(chan time.Time)
		go func() {
			l := acquire(t, t.Context(), second, "n")
			granted <- time.Now()
			release(t, l)
		}()
		time.Sleep(100 * first.TTL())
		kill(first)
		at := time.Now()
		if took := (<-granted).Sub(at); took > atOnce {
			t.Errorf("after %v", took)
		}
		<-lost.Context().Done() // what was cut off finds that it is dead
		assert.ErrorIs(t, context.Cause(lost.Context()), ErrLost)
		assert.Equal(t, p.burials(), 1)
		synctest.Wait() // until the takeover is noted
		second.report.history.Flush(t.Context())
		p.Mu.Lock()
		defer p.Mu.Unlock()
		assert.Equal(t, slices.ContainsFunc(p.EventRows, func(e protocol.Event) bool {
			return e.Kind == "expired" && e.Detail == hostEnded && e.Name == "n" &&
				e.Session == lost.claim.Request.Session
		}), true, "an event says why")
	})
}

func TestASweepOfAHostOnWhichAllLiveSendsNothing(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		acquire(t, t.Context(), first, "n")
		release(t, acquire(t, t.Context(), second, "another"))
		time.Sleep(time.Second)
		synctest.Wait()
		before := p.link.Asked()
		assert.Equal(t, second.sessions.Sweep(t.Context()), false)
		assert.Equal(t, p.link.Asked(), before, "calls")
	})
}

func TestATryFindsWhatAProcessThatHasEndedHad(t *testing.T) {
	for what, try := range map[string]func(t *testing.T, first, second *Client) error{
		"TryLock": func(t *testing.T, first, second *Client) error {
			acquire(t, t.Context(), first, "n")
			kill(first)
			return assert.ErrOf(second.tryLock(t, "n", 0, 0))
		},
		"of shares, of which another lives": func(t *testing.T, first, second *Client) error {
			require.NoError(t, require.ErrOf(second.tryLock(t, "n", 1, 3)))
			require.NoError(t, require.ErrOf(first.tryLock(t, "n", 1, 3)))
			kill(first)
			return assert.ErrOf(second.tryLock(t, "n", 2, 3))
		},
		"TryUpgrade": func(t *testing.T, first, second *Client) error {
			l, err := second.tryLock(t, "n", 1, protocol.Readers)
			require.NoError(t, err)
			require.NoError(t, require.ErrOf(first.tryLock(t, "n", 1, protocol.Readers)))
			kill(first)
			return l.TryUpgrade(t.Context())
		},
	} {
		t.Run(what, func(t *testing.T) {
			host(t, func(t *testing.T, p *paper, first, second *Client) {
				release(t, acquire(t, t.Context(), second, "before")) // its session was open before
				time.Sleep(atOnce)
				assert.NoError(t, try(t, first, second))
				assert.Equal(t, p.burials(), 1)
			})
		})
	}
}

func TestANewSessionFindsWhatAnEarlierProcessHasLeft(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		acquire(t, t.Context(), first, "n")
		acquire(t, t.Context(), first, "m")
		kill(first)
		release(t, acquire(t, t.Context(), second, "another"))
		p.Mu.Lock()
		left := len(p.ClaimsOf(first.sessions.Last().ID))
		p.Mu.Unlock()
		assert.Equal(t, left, 0, "locks of the dead")
		assert.Equal(t, len(p.proofs(t)), 1, "files: that of the process that lives")
	})
}

func TestNobodyIsBuriedWhoMayLive(t *testing.T) {
	for what, change := range map[string]func(p *paper, first *Client){
		"it lives":          func(p *paper, first *Client) {},
		"its file was lost": func(p *paper, first *Client) { _ = os.RemoveAll(p.host) },
	} {
		t.Run(what, func(t *testing.T) {
			host(t, func(t *testing.T, p *paper, first, second *Client) {
				l := acquire(t, t.Context(), first, "n")
				ctx, cancel := context.WithTimeout(t.Context(), 10*first.TTL())
				defer cancel()
				change(p, first)
				assert.ErrorIs(t, assert.ErrOf(second.Acquire(ctx, new(want("n")), true)), ErrNotAcquired)
				assert.NoError(t, l.Unlock(t.Context()))
				assert.Equal(t, p.burials(), 0)
			})
		})
	}
}

// The application may still do what it does under the lock, in the server.
func TestAGuardedTransactionDelaysTheSuccessorOfAProcessThatHasEnded(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		var guarded atomic.Bool
		guarded.Store(true)
		p.before = func(c *fakedb.Call) error {
			if c.Removes(protocol.ByTime) && guarded.Load() {
				return driver.ErrBusy
			}
			return nil
		}
		acquire(t, t.Context(), first, "n")
		go func() {
			time.Sleep(time.Second)
			kill(first)
			time.Sleep(time.Second)
			assert.Equal(t, p.burials(), 1)
			assert.Equal(t, len(p.proofs(t)), 2, "files: the proof remains while a lock does")
			guarded.Store(false)
		}()
		began := time.Now()
		release(t, acquire(t, t.Context(), second, "n"))
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("after %v, and the transaction ended after 2s", took)
		}
		time.Sleep(time.Second)
	})
}

// Broken by a TryLock that looked again and again while a transaction guarded what the dead had.
func TestASweepThatCanTakeNothingChangesNothing(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		p.before = func(c *fakedb.Call) error {
			if c.Removes(protocol.ByTime) {
				return driver.ErrBusy
			}
			return nil
		}
		acquire(t, t.Context(), first, "n")
		release(t, acquire(t, t.Context(), second, "another"))
		time.Sleep(time.Second)
		kill(first)
		assert.Equal(t, second.sessions.Sweep(t.Context()), true, "the session has ended")
		for range 3 {
			time.Sleep(250 * time.Millisecond)
			assert.Equal(t, second.sessions.Sweep(t.Context()), false)
		}
		assert.Equal(t, len(p.proofs(t)), 2, "files")
	})
}

func TestADatabaseThatDoesNotAnswerHoldsUpATryLockOnce(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		var burials atomic.Int64
		c := newPaperClient(t, fakedb.Hooked(p, func(ctx context.Context, c *fakedb.Call) error {
			if c.Method == "Bury" {
				burials.Add(1)
				<-ctx.Done()
				return ctx.Err()
			}
			return c.Do(ctx)
		}), nil)
		third := newPaperClient(t, p, nil)
		l := acquire(t, t.Context(), second, "n")
		for _, c := range []*Client{c, first, third} {
			release(t, acquire(t, t.Context(), c, "its own"))
		}
		time.Sleep(time.Second)
		kill(first)
		kill(third)
		began := time.Now()
		assert.ErrorIs(t, assert.ErrOf(c.tryLock(t, "n", 0, 0)), ErrNotAcquired)
		if took := time.Since(began); took > c.TTL()/4 || burials.Load() != 1 {
			t.Errorf("after %v and %d burials", took, burials.Load())
		}
		release(t, l)
	})
}

func TestAFailureOfTheDatabaseLeavesTheProof(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		var tries atomic.Int64
		p.before = func(c *fakedb.Call) error {
			if c.Method == "Bury" && tries.Add(1) <= 3 {
				return errAway
			}
			return nil
		}
		acquire(t, t.Context(), first, "n")
		release(t, acquire(t, t.Context(), second, "another"))
		kill(first)
		began := time.Now()
		release(t, acquire(t, t.Context(), second, "n"))
		if took := time.Since(began); tries.Load() != 4 || took > 5*time.Second {
			t.Errorf("after %v and %d tries", took, tries.Load())
		}
	})
}

func TestASessionOfAnotherDatabaseIsLeftAlone(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		var burials atomic.Int64
		other := newPaper()
		other.host = p.host // a copy of the database has the same id
		other.before = func(c *fakedb.Call) error {
			if c.Method == "Bury" {
				burials.Add(1)
			}
			return nil
		}
		acquire(t, t.Context(), first, "n")
		c := newPaperClient(t, other, nil)
		kill(first)
		for range 3 {
			time.Sleep(250 * time.Millisecond)
			release(t, acquire(t, t.Context(), c, "n"))
			c.sessions.Sweep(t.Context())
		}
		assert.Equal(t, burials.Load(), 1, "questions")
		release(t, acquire(t, t.Context(), second, "n"))
		assert.Equal(t, p.burials(), 1)
	})
}

func TestTheFileOfASessionGoesWithIt(t *testing.T) {
	for how, end := range map[string]func(p *paper, c *Client) error{
		"Close": func(p *paper, c *Client) error { return c.Close(context.Background()) },
		"without a use": func(p *paper, c *Client) error {
			time.Sleep(2 * idleTTLs * c.TTL())
			return nil
		},
		"without the database": func(p *paper, c *Client) error {
			p.leave()
			time.Sleep(2 * c.TTL())
			p.comeBack()
			return nil
		},
		"ended in the database": func(p *paper, c *Client) error {
			return p.EndSession(context.Background(), c.sessions.Last().ID, false)
		},
	} {
		t.Run(how, func(t *testing.T) {
			host(t, func(t *testing.T, p *paper, first, _ *Client) {
				release(t, acquire(t, t.Context(), first, "n"))
				assert.Equal(t, len(p.proofs(t)), 1, "files while it lives")
				require.NoError(t, end(p, first))
				time.Sleep(first.TTL())
				assert.Equal(t, len(p.proofs(t)), 0, "files after its end")
			})
		})
	}
	t.Run("not opened", func(t *testing.T) {
		host(t, func(t *testing.T, p *paper, first, _ *Client) {
			p.before = func(c *fakedb.Call) error {
				if c.Method != "OpenSession" {
					return nil
				}
				assert.Equal(t, len(p.proofs(t)), 1, "files before the database knows the session")
				return errAway
			}
			assert.Error(t, assert.ErrOf(first.tryLock(t, "n", 0, 0)))
			assert.Equal(t, len(p.proofs(t)), 0, "files")
		})
	})
}

func TestWithoutCrashDetectionTheLeaseDecides(t *testing.T) {
	for what, off := range map[string]func(first, second *Config){
		"of the holder": func(first, _ *Config) { first.Crash.Off = true },
		"of the waiter": func(_, second *Config) { second.Crash.Off = true },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaper()
				p.host = filepath.Join(t.TempDir(), "host")
				configs := [2]Config{}
				off(&configs[0], &configs[1])
				first := newPaperClient(t, p, func(c *Config) { c.Crash = configs[0].Crash })
				second := newPaperClient(t, p, func(c *Config) { c.Crash = configs[1].Crash })
				var dead atomic.Value // its id
				dead.Store("")
				p.before = func(c *fakedb.Call) error {
					if c.Beats() && c.Session == dead.Load() {
						return errAway
					}
					return nil
				}
				acquire(t, t.Context(), first, "n")
				dead.Store(first.sessions.Last().ID)
				kill(first)
				began := time.Now()
				release(t, acquire(t, t.Context(), second, "n"))
				if took := time.Since(began); took < first.TTL()-time.Second {
					t.Errorf("after %v", took)
				}
				assert.Equal(t, p.burials(), 0)
			})
		})
	}
}

// identified is a database with an identity.
type identified struct{ *paper }

func (i identified) Schema(ctx context.Context) (driver.Schema, error) {
	schema, err := i.paper.Schema(ctx)
	schema.Database = "ID"
	return schema, err
}

func TestALogSaysWhyOthersDoNotSeeTheEndOfAProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for level, at := range map[string]crash.Setting{"DEBUG": {}, "WARN": {Path: file}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPaper()
			p.host = file // and no folder
			var log strings.Builder
			c := newPaperClient(t, identified{p}, func(c *Config) {
				c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				c.Crash = at
			})
			release(t, acquire(t, t.Context(), c, "n"))
			require.NoError(t, c.Close(context.Background()))
			for _, part := range []string{"level=" + level, "locks move after the TTL", file} {
				if !strings.Contains(log.String(), part) {
					t.Errorf("%s: want %q", log.String(), part)
				}
			}
		})
	}
}

func TestAReaperBuriesTooAndHandsOn(t *testing.T) {
	host(t, func(t *testing.T, p *paper, first, second *Client) {
		var away atomic.Bool
		p.before = func(c *fakedb.Call) error {
			if c.Method == "Bury" && away.Load() {
				return errAway
			}
			return nil
		}
		engine := *inside.Make[engines.Engine[any]](driver.Engine[any]{Backend: p})
		acquire(t, t.Context(), first, "n")
		release(t, acquire(t, t.Context(), second, "another"))
		time.Sleep(time.Second) // no heartbeat is in flight, which would find that it is dead
		kill(first)
		sweep := func(options ...reaper.Option) reaper.Report {
			report, err := reaper.Sweep(t.Context(), engine, options...)
			require.NoError(t, err)
			return report
		}
		assert.Equal(t, sweep(reaper.WithoutCrashDetection()).Expired, 0, "of a reaper that knows nothing of its host")
		away.Store(true)
		assert.ErrorIs(t, assert.ErrOf(reaper.Sweep(t.Context(), engine)), driver.ErrUnavailable)
		away.Store(false)
		if r := sweep(); r.Expired != 1 || r.Freed != 1 {
			t.Errorf("%+v", r)
		}
		assert.Equal(t, len(p.proofs(t)), 2, "files: a client may have to do what the reaper could not")
		assert.Equal(t, sweep().Expired, 0, "again")
		assert.Equal(t, len(p.proofs(t)), 1, "files: that of the process that lives")
	})
}
