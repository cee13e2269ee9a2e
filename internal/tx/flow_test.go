package tx

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var errRefused = errors.New("refused")

// script is a transaction, and the client and the database that it needs. It notes their steps.
// free says, for each Lock, whether the name's row is locked at once. fails is the error of each
// step of the transaction.
type script struct {
	*Transactions
	session *store.Session
	mu      sync.Mutex // protects steps
	steps   []string
	free    []bool
	fails   error
	grants  int64
}

func (s *script) step(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, what)
}

func (s *script) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.steps, ", ")
}

func (s *script) Exclusive() bool { return false }

func (s *script) MakeGuard(context.Context, protocol.Held, driver.OnSideConn) error {
	s.step("MakeGuard")
	return nil
}

func (s *script) Guard(context.Context, protocol.Held, driver.OnSideConn) error {
	s.step("Guard")
	return s.fails
}

func (s *script) Release(context.Context, protocol.Held, protocol.Detachment, driver.OnSideConn) error {
	s.step("Release")
	return s.fails
}

func (s *script) Database(context.Context) (string, error) {
	s.step("Database")
	return "", nil
}

func (s *script) Lock(
	_ context.Context, _ string, may driver.Pass, _ bool, _ driver.OnSideConn,
) (driver.State, bool, error) {
	s.step("Lock")
	locked := s.free[0]
	s.free = s.free[1:]
	return driver.State{}, locked, s.fails
}

// hold is a lock of name n.
func (s *script) hold(ctx context.Context) *ledger.Claim {
	s.grants++
	r := protocol.Request{Name: "n", Attempt: string(rune('a' + s.grants))}
	c := s.Ledger.Request(s.session, &r, ledger.Owner{})
	s.Ledger.Allow(c.Grant, protocol.Grant{Token: s.grants}, 0)
	s.Ledger.Hold(ctx, c)
	return c
}

// Acquire implements Leases.
func (s *script) Acquire(ctx context.Context, _ string) (*ledger.Claim, error) {
	s.step("Acquire")
	return s.hold(ctx), nil
}

func (s *script) Refuse(driver.State, error) error {
	s.step("Refuse")
	return errRefused
}

func (s *script) SelfDeadlock(ledger.Owner, string) error { return nil }

// database is the script's, outside of the transaction.
func (s *script) database(ctx context.Context, c *fakedb.Call) error {
	if r, is := c.Op().(protocol.Removal); is && r.Cause == protocol.ByAttempt {
		s.step("Return")
		c.Outcome(protocol.Done)
		return nil
	}
	return c.Do(ctx)
}

// asleep is the keeper of a session in which nothing happens.
type asleep struct{ store.Keeper }

func (asleep) Opened(*session.Session) (lost func()) { return func() {} }

func (asleep) Reconcile(context.Context, *session.Session, session.List) error { return nil }

func (asleep) Unused() bool                { return false }
func (asleep) First()                      {}
func (asleep) Lost(*store.Session)         {}
func (asleep) Beaten(time.Duration, error) {}

func newScript(t *testing.T) *script {
	now := clock.Func(func() time.Duration { return 0 })
	log := testlog.New(io.Discard, t.Error)
	s := &script{}
	config := store.Config{TTL: time.Hour, Clock: now, Log: log}
	db := store.New(fakedb.Hooked(memory.NewLink(memory.NewDB()), s.database), config)
	sessions := store.NewSessions(db, asleep{})
	var err error
	s.session, err = sessions.Open(t.Context(), true)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.session.Stop(nil)
		db.Abort()
		sessions.Wait()
	})
	s.Transactions = New(Config{
		Store: db, Sessions: sessions, Leases: s,
		Ledger: ledger.New(ledger.Config{TTL: time.Hour, Clock: now, Log: log, Store: db}),
	})
	return s
}

var row = regexp.MustCompile(`(?m)^//\t(\S.*?)\s{2,}(\w.*)$`)

// The table in the package comment has every flow, with its steps.
func TestTheFlowsAreThoseOfTheTable(t *testing.T) {
	flows := map[string]func(t *testing.T, s *script) error{
		"Guard of a new hold": func(t *testing.T, s *script) error {
			_, err := s.Transactions.Guard(t.Context(), s, []*ledger.Claim{s.hold(t.Context())})
			return err
		},
		"Guard of a guarded hold": func(t *testing.T, s *script) error {
			h := s.hold(t.Context())
			h.Grant.Guardable.Store(true)
			_, err := s.Transactions.Guard(t.Context(), s, []*ledger.Claim{h})
			return err
		},
		"UnlockTx": func(t *testing.T, s *script) error {
			_, err := s.UnlockTx(t.Context(), s, []*ledger.Claim{s.hold(t.Context())})
			return err
		},
		"LockTx of a free name": func(t *testing.T, s *script) error {
			s.free = []bool{true}
			return s.LockTx(t.Context(), s, "n", true)
		},
		"LockTx behind a lease": func(t *testing.T, s *script) error {
			s.free = []bool{false, true}
			return s.LockTx(t.Context(), s, "n", true)
		},
		"LockTx that finds another lease": func(t *testing.T, s *script) error {
			s.free = []bool{false, false, true}
			return s.LockTx(t.Context(), s, "n", true)
		},
		"TryLockTx behind a lease": func(t *testing.T, s *script) error {
			s.free = []bool{false}
			if err := s.LockTx(t.Context(), s, "n", false); !errors.Is(err, errRefused) {
				return err
			}
			return nil
		},
	}
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	table := row.FindAllStringSubmatch(string(text), -1)
	require.Equal(t, len(table), len(flows), "rows")
	for _, row := range table {
		t.Run(row[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t)
				assert.NoError(t, flows[row[1]](t, s))
				synctest.Wait()
				assert.Equal(t, s.taken(), row[2], "its steps are")
			})
		})
	}
}

// Broken by a step that asks for the database after a deadlock.
func TestNothingIsSentThroughATransactionThatADeadlockHasEnded(t *testing.T) {
	deadlock := driver.Mark(driver.ErrRolledBack, driver.Fail(driver.ErrRetry, errors.New("a deadlock")))
	for what, do := range map[string]func(t *testing.T, s *script, h []*ledger.Claim) error{
		"MakeGuard, Guard": func(t *testing.T, s *script, h []*ledger.Claim) error {
			_, err := s.Transactions.Guard(t.Context(), s, h)
			return err
		},
		"Release": func(t *testing.T, s *script, h []*ledger.Claim) error {
			_, err := s.UnlockTx(t.Context(), s, h)
			return err
		},
		"Lock": func(t *testing.T, s *script, _ []*ledger.Claim) error {
			s.free = []bool{false}
			return s.LockTx(t.Context(), s, "n", true)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			s.fails = deadlock
			err := do(t, s, []*ledger.Claim{s.hold(t.Context())})
			assert.ErrorIs(t, err, driver.ErrRetry)
			synctest.Wait()
			assert.Equal(t, s.taken(), what, "its steps are")
		})
	}
}
