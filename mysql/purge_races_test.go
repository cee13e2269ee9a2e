package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

func TestAPurgePassesOverWhatIsBeingTouched(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			held := a.take(t, name)
			if name != "d" {
				require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, held, false)))
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

// Rows are locked for a round trip each: a page of them at once, for so long that TryLock of an
// idle name finds it busy.
func TestAPurgeLocksFewNamesAtATime(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		purger := server{s.Through(t, proxy), s.pool}.engine(t)
		a := s.actor(t)
		for i := range 40 {
			s.exec(t, "INSERT INTO dblock_locks (name, host, thread, token, acquired_at, metadata) VALUES (?, '', "+
				"'', 1, 1, '')", fmt.Sprintf("n%02d", i))
		}
		deleting, goOn := stopAt(t, proxy, "-- name: DropLock", 1)
		purging := start(t, func(ctx context.Context) (int, error) {
			n, _, err := purger.Purge(ctx, time.Hour, "", 100)
			return n, err
		})
		soon(t, "the purge to lock rows", deleting)
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
		pool := s.open(t, nil)
		e := mysql.New(pool)
		a, b := actor{Backend: e.Backend, session: id()}, s.actor(t)
		other := s.actor(t)
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		held := a.take(t, "n")
		for _, dead := range []actor{a, other} {
			s.expire(t, dead)
			require.NoError(t, require.ErrOf(b.Expire(t.Context(), dead.session)))
		}
		require.NoError(t, third(drivertest.TakeOver(t.Context(), b, b.session, "n", protocol.Holder{Session: a.session,
			Grant: protocol.Grant{Token: held.Token}})))
		is(t, e.In(nil).MakeGuard(t.Context(), held, onSideConn(t, e.Backend)), driver.ErrNotHeld)
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
		proxy := dbtest.NewProxy(t, s.Addr(t))
		purger := server{s.Through(t, proxy), s.pool}.engine(t)
		pool := s.open(t, nil)
		e := mysql.New(pool)
		a := actor{Backend: e.Backend, session: id()}
		require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a, a.take(t, "n"), false)))
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 1")
		beside := onSideConn(t, e.Backend)
		lock := func(tx *sql.Tx) <-chan outcome[bool] {
			return start(t, func(ctx context.Context) (bool, error) {
				_, locked, err := e.In(tx).Lock(ctx, "n", func(string, int, any) bool { return false },
					true, beside)
				return locked, err
			})
		}
		begin := func() *sql.Tx {
			tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return tx
		}
		deleting, goOn := stopAt(t, proxy, "-- name: DropLock", 1)
		purging := start(t, func(ctx context.Context) (int, error) {
			n, _, err := purger.Purge(ctx, time.Hour, "", 10)
			return n, err
		})
		soon(t, "the purge to lock the row", deleting)
		tx := begin()
		waiter := actor{locked: new(atomic.Bool)}
		require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&waiter.conn))
		locking := lock(tx)
		s.blocked(t, waiter)
		goOn()
		if got := <-purging; got.err != nil || got.value != 1 {
			t.Fatalf("%+v, want 1 deleted", got)
		}
		got := <-locking
		is(t, got.err, driver.ErrRetry)
		require.NoError(t, tx.Rollback())
		if got := <-lock(begin()); got.err != nil || !got.value {
			t.Fatalf("%+v, want locked", got)
		}
	})
}
