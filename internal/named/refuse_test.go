package named_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/named"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// Broken by believing that a lock was given back which the server says was not held.
func TestAnUnlockingThatTheServerDeniesEndsTheConnection(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		for _, answer := range []string{"0*", "NULL*"} {
			var deny atomic.Bool
			k := s.keeper(s.tapped(func(text string) (string, error) {
				if deny.Load() {
					text = strings.ReplaceAll(text, "RELEASE_LOCK", answer+"RELEASE_LOCK")
				}
				return text, nil
			}, false))
			p, q := s.lock(k, "p"), s.lock(k, "q")
			deny.Store(true)
			is(t, p.Release(t.Context()), driver.ErrNotHeld)
			s.lost(q)
			assert.Error(t, context.Cause(q.Kept()), "no cause")
			deny.Store(false)
			s.nothingLeft("q")
			s.unlock(s.lock(k, "q"))
		}
	})
}

// Broken by handing the server's deadlock to the caller: other users of these names may cause it,
// and the next attempt may work.
func TestADeadlockAmongNamedLocksIsWaitedOut(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		for _, number := range []uint16{3058, 1213} {
			var deadlocks atomic.Int32
			k := s.keeper(s.tapped(func(text string) (string, error) {
				if strings.Contains(text, "CASE GET_LOCK") && deadlocks.Add(1) <= 2 {
					return "", &sqldriver.MySQLError{Number: number}
				}
				return text, nil
			}, false))
			one := s.client(nil)
			held := s.lock(one, "n")
			c, cancel := s.begin(k, "n", 1)
			s.unlock(held)
			s.unlock(s.granted(c))
			cancel()
			if deadlocks.Load() < 3 {
				t.Error("there was none")
			}
		}
	})
}

// A wait that was killed returns NULL on MariaDB, which is no lock.
func TestNullIsNoNamedLock(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		one := s.client(nil)
		for _, of := range []string{"CASE ", ", "} { // of the waiter, and of the connection that has the locks
			var null atomic.Bool
			k := s.keeperFor(s.tapped(func(text string) (string, error) {
				if null.Load() {
					text = strings.ReplaceAll(text, of+"GET_LOCK(", of+"NULL*GET_LOCK(")
				}
				return text, nil
			}, false), time.Second)
			s.unlock(s.lock(k, "n"))
			held := s.lock(one, "n")
			if of == ", " {
				s.unlock(held)
			}
			null.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, _, err := k.Acquire(ctx, s.name("n"), false, true)
			is(t, err, driver.ErrUnavailable)
			if of == "CASE " {
				s.unlock(held)
			}
		}
	})
}

func TestNamedLocksAreRefusedWhereTheyAreNone(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		for what, c := range map[string]struct {
			rewrite func(string) (string, error)
			spread  bool
			kind    error
			says    string
		}{
			"Galera":   {answering("'wsrep_on', 'ON'"), false, driver.ErrConfig, "Galera"},
			"replica":  {answering("'read_only', 'ON'"), false, driver.ErrReadOnly, "replica"},
			"proxy":    {nil, true, driver.ErrConfig, "CONNECTION_ID"},
			"disabled": {instead("GET_LOCK(", "NULL*GET_LOCK("), false, driver.ErrConfig, "no named locks"},
			"primaries": {answering("'group_replication_group_name', 'g' UNION SELECT " +
				"'group_replication_single_primary_mode', 'OFF'"), false, driver.ErrConfig, "primaries"},
		} {
			_, _, err := s.keeper(s.tapped(c.rewrite, c.spread)).Acquire(t.Context(), s.name("n"), false, true)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", what, err)
			}
		}
		s.nothingLeft("n")
	})
}

func answering(row string) func(string) (string, error) {
	return func(text string) (string, error) {
		if strings.HasPrefix(text, "SHOW") {
			text = "SELECT " + row
		}
		return text, nil
	}
}

// Broken by looking only when the connection is opened.
func TestNamedLocksEndWithThePrimary(t *testing.T) {
	onStage(t, func(t *testing.T, s stage) {
		for what, c := range map[string]struct {
			of, text string
			kind     error
		}{
			"demoted": {"@@GLOBAL.read_only", "1", driver.ErrReadOnly},
			"moved":   {"CONNECTION_ID(), @@", "1, @@", driver.ErrConfig},
		} {
			var now atomic.Bool
			k := s.keeper(s.tapped(func(text string) (string, error) {
				if now.Load() {
					text = strings.ReplaceAll(text, c.of, c.text)
				}
				return text, nil
			}, false))
			p := s.lock(k, what)
			now.Store(true)
			_, _, err := k.Acquire(t.Context(), s.name("other"), false, true)
			assert.ErrorIs(t, err, c.kind, what)
			s.lost(p)
			is(t, context.Cause(p.Kept()), c.kind)
		}
	})
}

// Broken by leaving the application's limits on these connections, and by a wait as long as its
// readTimeout.
func TestTheApplicationsLimitsAreNotForNamedLocks(t *testing.T) {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("scripts/soak runs it")
	}
	onStage(t, func(t *testing.T, s stage) {
		limits := func(c *sqldriver.Config) {
			set(c, "wait_timeout", "1")
			if s.Kind == "mysql" {
				set(c, "max_execution_time", "300")
			} else {
				set(c, "max_statement_time", "0.3")
			}
			c.ReadTimeout = 2 * time.Second
		}
		one, two := s.client(limits), s.client(limits)
		held := s.lock(one, "n")
		c, cancel := s.begin(two, "n", 1)
		defer cancel()
		dbtest.Eventually(t, "it to be held for longer", func() bool {
			return s.number("SELECT COUNT(*) FROM "+s.Processes()+" WHERE db = DATABASE() AND command = 'Sleep' AND "+
				"id = ? AND time >= 2", s.holder(named.Key(s.name("n")))) == 1
		})
		s.waiting(1)
		s.unlock(held)
		s.unlock(s.granted(c))
		s.nothingLeft("n") // the queue was joined once, however many statements the wait took

		hasty := s.client(func(c *sqldriver.Config) { c.ReadTimeout = time.Second })
		held = s.lock(one, "n")
		_, _, err := hasty.Acquire(t.Context(), s.name("n"), false, true)
		if is(t, err, driver.ErrConfig); !strings.Contains(err.Error(), "readTimeout=1s") {
			t.Error(err)
		}
		s.unlock(held)
	})
}

// set has each connection begin with a variable of its session set.
func set(c *sqldriver.Config, variable, value string) {
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params[variable] = value
}
