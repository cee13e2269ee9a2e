package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var transactions = inPlaces(own{
	{"LockTx is held until the transaction commits or is rolled back", lockTxHeld},
	{"LockTx and leases exclude each other, and neither Try waits for the end of the other", lockTxAndLease},
	{"LockTx waits its turn for a lease, and the next waiter comes after the transaction", lockTxTurn},
	{"a LockTx that its context ends leaves nothing, and the transaction goes on", lockTxCancelled},
	{"a transaction that others wait for goes on to new names, and so does everybody else", lockTxNewNames},
	{"many transactions lock several new names at once", lockTxEmptyTable},
	{"many transactions lock several names in any order without a deadlock", lockTxSorted},
	{"of two transactions that wait for each other one is told, and the other goes on", lockTxDeadlock},
	{"whoever waits for a name that a long transaction has locked holds no connection of the pool", noConnectionWaits},
	{"LockTx for one name in as many transactions as the pool has connections goes through them one by one",
		lockTxWholePool},
	{"LockTx in the same transaction, or under the lease of the same owner, is held already", lockTxAgain},
	{"a stream of LockTx of one client does not pass the leases that are queued", lockTxStream},
	{"LockTx refuses bad input before any I/O", lockTxInput},
})

func lockTx(t testing.TB, c Client, tx Tx, names ...string) {
	t.Helper()
	ctx := limited(t, patience)
	require.NoError(t, c.LockTx(ctx, tx, names...))
}

// Broken by a LockTx that locks nothing.
func lockTxHeld(t *testing.T, e *env) {
	a, c := e.appClient(t, 8)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		if e.snapshots(t, level) {
			unlock(t, lock(t, c, name)) // a snapshot from before the name's row was made cannot lock it
		}
		for _, end := range []func(testing.TB, Tx){commit, rollback} {
			first := beginTx(t, a, level)
			lockTx(t, c, first, name)
			second := beginTx(t, a, level)
			err := c.TryLockTx(brief(t), second, name)
			says(t, err, dblock.ErrNotAcquired, "another transaction has locked the name")
			got := async(func() error { return c.LockTx(context.Background(), second, name) })
			stillWaits(t, 50*time.Millisecond, got)
			require.NoError(t, first.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"))
			before := e.number(t, "SELECT count(*) FROM app")
			end(t, first)
			after := e.number(t, "SELECT count(*) FROM app")
			err = within(t, soon, "the second transaction has the lock", got)
			old := after > before && e.snapshots(t, level) // the snapshot is from before the wait
			if old && errors.Is(err, driver.ErrRetry) {
				rollback(t, second)
				continue
			}
			require.NoError(t, err)
			if n, err := second.number(t.Context(), "SELECT count(*) FROM app"); err != nil || n != after {
				t.Errorf("the second transaction sees %d of %d rows: not what was done under the lock before it (%v)",
					n, after, err)
			}
			e.usable(t, second)
		}
	})
}

func lockTxAndLease(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, client := range []Client{c, other} {
			l := lock(t, client, name)
			tx := beginTx(t, a, level)
			err := c.TryLockTx(brief(t), tx, name)
			is(t, err, dblock.ErrNotAcquired)
			var held *dblock.NotAcquiredError
			if !errors.As(err, &held) || held.Token != l.Token() {
				t.Errorf("%v: want the holder", err)
			}
			e.usable(t, tx)
			unlock(t, l)

			tx = beginTx(t, a, level)
			lockTx(t, c, tx, name)
			says(t, refused(t, client, name), dblock.ErrNotAcquired, // and so before the transaction ends
				"(LockTx, UnlockTx): inside it, do not call Lock")
			waiting := locking(t.Context(), client, name)
			stillWaits(t, 300*time.Millisecond, waiting) // longer than any limit
			e.usable(t, tx)
			unlock(t, granted(t, soon, waiting))
			e.free(t, name)
		}
	})
}

func lockTxTurn(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		first := lock(t, other, name)
		tx := beginTx(t, a, level)
		locked := async(func() error { return c.LockTx(context.Background(), tx, name) })
		e.queued(t, name, 1)
		after := e.waiter(t, other, name)
		unlock(t, first)
		err := within(t, soon, "LockTx has its turn", locked)
		if err != nil { // a snapshot from before its turn
			if !e.snapshots(t, level) {
				t.Fatal(err)
			}
			rollback(t, tx)
			unlock(t, granted(t, soon, after))
			e.free(t, name)
			return
		}
		stillWaits(t, 100*time.Millisecond, after)
		e.usable(t, tx)
		unlock(t, granted(t, soon, after))
		e.free(t, name)
	})
}

// Broken by giving the driver a context that ends: it closes the connection.
func lockTxCancelled(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		give := func(t *testing.T) Tx {
			for wait := 100 * time.Millisecond; ; wait *= 2 {
				tx := beginTx(t, a, level)
				ctx := limited(t, wait)
				locked := async(func() error { return c.LockTx(ctx, tx, name) })
				err := within(t, wait+patience, "LockTx obeys its context", locked)
				if errors.Is(err, dblock.ErrUnavailable) && wait < patience { // too slow to see who has it
					_ = tx.rollback()
					continue
				}
				is(t, err, dblock.ErrNotAcquired)
				is(t, err, context.DeadlineExceeded)
				return tx
			}
		}
		t.Run("behind a transaction", func(t *testing.T) {
			holder := beginTx(t, a, level)
			lockTx(t, c, holder, name)
			first, second := give(t), give(t)
			if e.wiring.Kind == SQLite { // one at a time can write, whatever it has locked
				commit(t, holder)
			}
			e.usable(t, first)
			e.usable(t, second)
			if e.wiring.Kind != SQLite {
				commit(t, holder)
			}
		})
		t.Run("behind a lease", func(t *testing.T) {
			l := lock(t, other, name)
			e.usable(t, give(t))
			unlock(t, l)
			e.free(t, name)
		})
		tx := beginTx(t, a, level)
		lockTx(t, c, tx, name)
		commit(t, tx)
	})
}

func lockTxAgain(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		tx := beginTx(t, a, level)
		lockTx(t, c, tx, name)
		lockTx(t, c, tx, name, name, name+"+")
		e.usable(t, tx)

		err := c.Do(t.Context(), name, func(ctx context.Context, l *dblock.Lock) error {
			tx := beginTx(t, a, level)
			if err := c.TryLockTx(ctx, tx, name); err != nil {
				return fmt.Errorf("under its own lease: %w", err)
			}
			e.usable(t, tx)
			return nil
		})
		require.NoError(t, err)
		// After its turn in the queue.
		l := lock(t, other, name)
		tx = beginTx(t, a, e.readCommitted())
		locked := async(func() error { return c.LockTx(context.Background(), tx, name) })
		e.queued(t, name, 1)
		waiting := e.waiter(t, other, name)
		unlock(t, l)
		require.NoError(t, within(t, soon, "LockTx has its turn", locked))
		lockTx(t, c, tx, name)
		nested, err := tx.nested(t.Context())
		require.NoError(t, err)
		lockTx(t, c, nested, name) // the same transaction, though its value is another
		e.usable(t, tx)
		unlock(t, granted(t, soon, waiting))
	})
}

func lockTxInput(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	e.exec(t, "CREATE TABLE app (n integer)")
	tx := beginTx(t, a, e.levels()[0])
	for _, try := range []func(context.Context, Tx, ...string) error{c.LockTx, c.TryLockTx} {
		is(t, try(t.Context(), tx, ""), dblock.ErrInvalidName)
		is(t, try(t.Context(), tx, "n", "m", ""), dblock.ErrInvalidName)
		is(t, try(t.Context(), tx), dblock.ErrInvalidOption)
		is(t, try(nil, tx, "n"), dblock.ErrInvalidOption) //nolint:staticcheck // what is tested
	}
	e.usable(t, tx)
}
