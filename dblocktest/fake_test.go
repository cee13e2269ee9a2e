package dblocktest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// soon is the limit for what must happen by itself.
const soon = 20 * time.Second

// Tx is the type of an application's transactions.
type Tx struct{}

type (
	client = *dblock.Client[*Tx]
	lock   = *dblock.Lock
)

// inBothWorlds runs a test outside and inside a bubble of testing/synctest.
func inBothWorlds(t *testing.T, test func(t *testing.T)) {
	t.Run("outside a bubble", func(t *testing.T) {
		already := leak.Running()
		t.Run("test", test)
		assert.NoError(t, leak.Find(already))
	})
	t.Run("in a bubble", func(t *testing.T) { synctest.Test(t, test) })
}

func take(t testing.TB, c client, name string, options ...dblock.LockOption) lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	l, err := c.Lock(ctx, name, options...)
	require.NoError(t, err)
	return l
}

// taking takes a lock in the background. seen runs as soon as it has the lock.
func taking(t testing.TB, c client, name string, seen func(lock), options ...dblock.LockOption) <-chan lock {
	t.Helper()
	taken := make(chan lock, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Hour) // longer than Advance in a bubble
		defer cancel()
		l, err := c.Lock(ctx, name, options...)
		if err != nil {
			t.Error(err)
			close(taken)
			return
		}
		seen(l)
		taken <- l
	}()
	return taken
}

func got(t testing.TB, taken <-chan lock) lock {
	t.Helper()
	select {
	case l := <-taken:
		if l == nil {
			t.FailNow()
		}
		return l
	case <-time.After(soon):
		t.Fatal("the lock does not come")
		return nil
	}
}

// hasLost checks that a lock is known to be lost now.
func hasLost(t testing.TB, l lock) {
	t.Helper()
	if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), dblock.ErrLost) {
		t.Errorf("%q: the context's cause is %v: want ErrLost", l.Name(), context.Cause(l.Context()))
	}
}

func has(t testing.TB, l lock) {
	t.Helper()
	if l.Context().Err() != nil {
		t.Errorf("%q was lost: %v", l.Name(), context.Cause(l.Context()))
	}
}

// isTaken checks that TryLock is refused.
func isTaken(t testing.TB, c client, name string, options ...dblock.LockOption) {
	t.Helper()
	assert.ErrorIs(t, assert.ErrOf(c.TryLock(context.Background(), name, options...)), dblock.ErrNotAcquired,
		"TryLock of", name)
}

// tb is a test in a test: it ends when end is called, and may fail.
type tb struct {
	testing.TB
	said     []string
	cleanups []func()
}

func (b *tb) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *tb) Fatalf(format string, args ...any) {
	b.said = append(b.said, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (b *tb) Fatal(args ...any) { b.Fatalf("%s", fmt.Sprint(args...)) }

func (b *tb) end() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
	b.cleanups = nil
}

// fails checks that a test ends with such a failure.
func fails(t *testing.T, with string, test func(t testing.TB)) {
	t.Helper()
	b, ended := &tb{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		defer b.end()
		test(b)
	}()
	<-ended
	if said := strings.Join(b.said, "\n"); !strings.Contains(said, with) {
		t.Errorf("the test said %q: want %q", said, with)
	}
}

func TestProcessesOfOneDatabaseShareItsLocks(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		second, stranger := f.Another(t), dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		isTaken(t, second.Client, "n")
		take(t, stranger.Client, "n")
		waits := taking(t, second.Client, "n", func(lock) {})
		f.AwaitQueue(t, "n", 1)
		assert.NoError(t, held.Unlock(t.Context()))
		if next := got(t, waits); next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
	})
}

func TestAnOptionThatDblockRefusesEndsTheTest(t *testing.T) {
	fails(t, "TTL", func(t testing.TB) { dblocktest.New[*Tx](t, dblock.WithTTL(time.Millisecond)) })
}

func TestADatabaseWithoutADriverEndsTheTest(t *testing.T) {
	if len(sql.Drivers()) > 0 {
		t.Skip("there is a driver")
	}
	fails(t, "modernc.org/sqlite", func(t testing.TB) { dblocktest.SQLite(t) })
}

func TestWhatNeedsATransactionSaysWhatToDoInstead(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	l := take(t, f.Client, "n")
	for what, err := range map[string]error{
		"Guard":     f.Client.Guard(t.Context(), &Tx{}, l),
		"UnlockTx":  f.Client.UnlockTx(t.Context(), &Tx{}, l),
		"LockTx":    f.Client.LockTx(t.Context(), &Tx{}, "m"),
		"TryLockTx": f.Client.TryLockTx(t.Context(), &Tx{}, "m"),
	} {
		if !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "dblocktest.SQLite") {
			t.Errorf("%s: %v", what, err)
		}
	}
	has(t, l)
	assert.NoError(t, l.Unlock(t.Context()))
}

func TestWhileADatabaseIsAwayHoldersKeepTheirLocksAndNewRequestsFail(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		second := f.Another(t)
		f.Down()
		second.Down()
		assert.ErrorIs(t, assert.ErrOf(second.Client.Lock(t.Context(), "m")), dblock.ErrUnavailable,
			"Lock without a database")
		f.Advance(f.Client.TTL() / 2)
		has(t, held)
		f.Up()
		second.Up()
		f.Advance(f.Client.TTL())
		has(t, held)
		isTaken(t, second.Client, "n")
	})
}

func TestAWaiterOutlivesADatabaseThatIsAwayForAMoment(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		release := f.Hold(t, "n")
		waits := taking(t, f.Client, "n", func(lock) {})
		f.AwaitQueue(t, "n", 1)
		f.Down()
		release()
		f.Up()
		has(t, got(t, waits))
	})
}

// In a bubble no time goes by between two grants.
func TestTokensRiseWithinOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, last := dblocktest.New[*Tx](t).Client, int64(0)
		for range 5 {
			l := take(t, c, "n")
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			assert.NoError(t, l.Unlock(t.Context()))
		}
	})
}
