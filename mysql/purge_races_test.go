package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAPurgePassesOverWhatIsBeingTouched(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			held := a.take(t, name)
			if name != "d" {
				does(t, a, protocol.Release(held, false, false))
			}
		}
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 0")
		touching := s.transaction(t, "SELECT name FROM dblock_locks WHERE name = 'b' FOR UPDATE")
		got := <-start(t, func(ctx context.Context) (int, error) {
			n, next, err := a.Purge(ctx, ttl, "", 10)
			if next != "" {
				t.Errorf("next %q after the last page", next)
			}
			return n, err
		})
		if got.err != nil || got.value != 2 {
			t.Fatalf("%+v, want 2 deleted", got)
		}
		require.NoError(t, touching.Commit())
		require.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE name IN ('b', 'd')"), 2,
			"rows in use were deleted")
	})
}

// purging is a purge of what has been idle for long. It has locked rows, and deletes them once it
// goes on.
func (s server) purging(t *testing.T) (deleted <-chan outcome[int], goOn func()) {
	t.Helper()
	proxy := dbtest.NewProxy(t, s.Addr(t))
	purger := server{s.Through(t, proxy), s.pool}.engine(t)
	deleting, goOn := stopAt(t, proxy, "-- name: DropLock", 1)
	deleted = start(t, func(ctx context.Context) (int, error) {
		n, _, err := purger.Purge(ctx, time.Hour, "", 100)
		return n, err
	})
	soon(t, "the purge to lock rows", deleting)
	return deleted, goOn
}

// Rows are locked for a round trip each: a page of them at once, for so long that TryLock of an
// idle name finds it busy.
func TestAPurgeLocksFewNamesAtATime(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for i := range 40 {
			s.idle(t, fmt.Sprintf("n%02d", i))
		}
		purging, goOn := s.purging(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		for _, name := range []string{"n10", "n39"} {
			if _, taken, err := drivertest.Take(ctx, a, a.request(name)); err != nil || !taken {
				t.Errorf("%s, which is idle: %v %v", name, taken, err)
			}
		}
		goOn()
		if got := <-purging; got.err != nil || got.value != 38 {
			t.Fatalf("%+v, want the others deleted", got)
		}
	})
}

func TestForgetPassesOverASessionWhoseRowIsLocked(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.application(t), s.actor(t)
		held := a.take(t, "n")
		for _, dead := range []actor{a.actor, s.actor(t)} {
			s.expire(t, dead)
			b.buries(t, dead)
		}
		require.NoError(t, third(drivertest.TakeOver(t.Context(), b, b.session, "n", protocol.Holder{Session: a.session,
			Grant: protocol.Grant{Token: held.Token}})))
		is(t, a.engine.In(nil).MakeGuard(t.Context(), held, a.beside), driver.ErrNotHeld)
		tx := s.transaction(t, "SELECT id FROM dblock_sessions WHERE id = ? FOR UPDATE", a.session)
		for _, want := range []int{1, 0} {
			got := <-start(t, func(ctx context.Context) (int, error) { return b.Forget(ctx, -time.Hour, 10) })
			if got.err != nil || got.value != want {
				t.Fatalf("%+v, want %d forgotten", got, want)
			}
		}
		require.NoError(t, tx.Rollback())
		if n, err := b.Forget(t.Context(), -time.Hour, 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	})
}

// Where the row was, LockTx at REPEATABLE READ locks the gap: it must not make the row again,
// beside the transaction.
func TestLockTxDoesNotWaitForItselfAfterAPurge(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.application(t)
		does(t, a.actor, protocol.Release(a.take(t, "n"), false, false))
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 1")
		purging, goOn := s.purging(t)
		tx, waiter := a.begin(t, sql.LevelRepeatableRead)
		locking := start(t, func(ctx context.Context) (bool, error) { return a.lock(ctx, tx, "n", true) })
		s.blocked(t, waiter)
		goOn()
		if got := <-purging; got.err != nil || got.value != 1 {
			t.Fatalf("%+v, want 1 deleted", got)
		}
		is(t, (<-locking).err, driver.ErrRetry)
		require.NoError(t, tx.Rollback())
		tx, _ = a.begin(t, sql.LevelRepeatableRead)
		a.locks(t, tx, "n", true, true)
	})
}
