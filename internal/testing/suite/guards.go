package suite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var guards = inPlaces(own{
	{"a guarded lock cannot be taken over before the transaction ends", guarded},
	{"Guard after a takeover is never a yes, however old the transaction's snapshot is", guardTooLate},
	{"Guard works in as many transactions as the pool has connections left", guardWholePool},
	{"Guard neither holds up heartbeats, waiters and TryLock, nor waits for them", guardAside},
	{"Guard of a lock that is lost, or another's, is ErrLost, after Unlock ErrNotHeld, and the transaction goes on",
		guardRefused},
	{"UnlockTx hands the lock on if the transaction commits, and not before", unlockTxCommitted},
	{"after UnlockTx and a rollback the lock is held as before", unlockTxRolledBack},
	{"UnlockTx that waits for another transaction ends with its context, and so does Unlock beside it", unlockTxWaits},
	{"Close ends an UnlockTx that waits for another transaction", closeEndsUnlockTx},
	{"UnlockTx sees a waiter that came after the transaction's snapshot, or fails", unlockTxSnapshot},
	{"a commit under the context of Do is not cut off by the release that it commits", committedInDo},
	{"what was guarded goes to the next once its transactions have ended, and Unlock does not wait for them",
		unlockedBeforeEnd},
	{"a COMMIT that lands after Unlock lands before the next grant", commitAfterUnlock},
	{"UnlockTx is refused while another transaction is open that the lock guards, and both go on", unlockTxBesideGuard},
	{"UnlockTx does not miss a guard that is newer than its snapshot", unlockTxOlderThanGuard},
	{"a release of what an open transaction guards is refused, whoever waits", releaseOfGuarded},
}, moving{
	{"what UnlockTx has released keeps its context until Unlock, or for a TTL", departedContext},
	{"a fixed lease that is over is not given away under a guarded transaction", guardedLeaseOver},
	{"the lock of a holder that does not get on goes to the next, once what it guards has ended", stalled},
}, flowing{
	{"a lock that is lost after UnlockTx was rolled back is lost", lostAfterRollback},
	{"a lock that was guarded after UnlockTx was rolled back, and is then lost, is lost", lostAfterGuard},
	{"a lock that is taken away while UnlockTx is in flight is lost", takenDuringUnlockTx},
	{"Guard after UnlockTx, whose transaction is still open, shows nothing of its end", guardBeforeCommit},
	{"a name that is free although others wait is handed on by one of them", promoted},
	{"Guard of a lock whose row a transaction keeps locked says so, and the lock stays", guardBehindTheRow},
})

// beginTx opens a transaction of the application's, and ends it with the test where that did not.
func beginTx(t testing.TB, a App, level sql.IsolationLevel) Tx {
	t.Helper()
	tx, err := a.begin(context.Background(), level)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.rollback() })
	return tx
}

func commit(t testing.TB, tx Tx) {
	t.Helper()
	require.NoError(t, tx.commit(context.Background()))
}

func rollback(t testing.TB, tx Tx) {
	t.Helper()
	require.NoError(t, tx.rollback())
}

// snapshot has the transaction read, so that it sees from then on what was there then.
func snapshot(t testing.TB, tx Tx) {
	t.Helper()
	require.NoError(t, require.ErrOf(tx.number(context.Background(), "SELECT count(*) FROM app")))
}

// usable checks that the transaction can go on: it writes, and what it writes is there after the
// commit.
func (e *env) usable(t testing.TB, tx Tx) {
	t.Helper()
	before := e.number(t, "SELECT count(*) FROM app")
	require.NoError(t, tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)"), "the transaction cannot go on")
	commit(t, tx)
	require.Equal(t, e.number(t, "SELECT count(*) FROM app"), before+1, "rows after", before, "and one more")
}

// Broken by leaving the lock on the guard's row out of Guard.
func guarded(t *testing.T, e *env) {
	e.takeovers(t, func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover) {
		held, holder := e.takeFor(t, a, name, w)
		require.NoError(t, a.makeGuard(t.Context(), held))
		tx := beginTx(t, a, level)
		snapshot(t, tx)
		require.NoError(t, a.guard(t.Context(), tx, held))
		if e.wiring.Kind == SQLite { // the test could not write either: the transaction has locked the database
			ctx := limited(t, 100*time.Millisecond)
			_, _, err := drivertest.TakeOver(ctx, other.Backend, "", held.Name, holder)
			is(t, err, context.DeadlineExceeded)
		} else {
			is(t, w.take(t, e, other, held, holder), driver.ErrBusy)
		}
		e.commitOne(t, tx)
		require.NoError(t, w.take(t, e, other, held, holder), "taking over after the transaction")
	})
}

// commitOne writes something in the transaction and commits.
func (e *env) commitOne(t testing.TB, tx Tx) {
	t.Helper()
	require.NoError(t, tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)"))
	commit(t, tx)
}

// Broken by a takeover that does not write the guard's row, or by a Guard that does not look at the
// lock's.
func guardTooLate(t *testing.T, e *env) {
	e.takeovers(t, func(t *testing.T, a, other App, name string, level sql.IsolationLevel, w takeover) {
		for _, made := range []string{"never", "before the snapshot", "after the snapshot"} {
			t.Run("guard made "+made, func(t *testing.T) {
				held, holder := e.takeFor(t, a, name+made, w)
				makeGuard := func() { require.NoError(t, a.makeGuard(t.Context(), held)) }
				if made == "before the snapshot" {
					makeGuard()
				}
				tx := beginTx(t, a, level)
				snapshot(t, tx)
				if made == "after the snapshot" {
					makeGuard()
				}
				require.NoError(t, w.take(t, e, other, held, holder))
				if err := a.makeGuard(t.Context(), held); e.wiring.Kind != SQLite {
					is(t, err, driver.ErrNotHeld)
				}
				err := a.guard(t.Context(), tx, held)
				if !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrRetry) {
					t.Fatalf("Guard of a lock that was taken over: %v, want ErrNotHeld or a serialization failure", err)
				}
			})
		}
	})
}

// Broken by a Guard that locks the lock's row, or the heartbeat's.
// One connection beats, one is for work beside transactions, and three have transactions.
func guardWholePool(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite || e.wiring.Kind == TiDB { // where one transaction at a time guards a hold
		return
	}
	a, c := e.appClient(t, 5)
	l := lock(t, c, "guarded")
	for range 3 {
		tx, err := a.begin(t.Context(), e.levels()[0])
		require.NoError(t, err)
		defer tx.rollback()
		ctx := limited(t, patience)
		require.NoError(t, c.Guard(ctx, tx, l))
	}
}

func guardAside(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // a transaction that writes keeps everybody else from writing, guarded or not
		return
	}
	a, b := e.app(t, 5), e.app(t, 8)
	other := e.clientOf(t, b)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		held, _ := e.takeFor(t, a, name, takeover{})
		require.NoError(t, a.makeGuard(t.Context(), held))
		tx := beginTx(t, a, level)
		snapshot(t, tx)
		require.NoError(t, a.guard(t.Context(), tx, held))
		up, err := b.Backend.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer up.Close()
		if alive, err := up.Heartbeat(brief(t), held.Session, longTTL); err != nil || !alive {
			t.Fatalf("a heartbeat beside a guarded transaction: %v, %v", alive, err)
		}
		for _, options := range [][]dblock.LockOption{nil, {dblock.Owner("another", "owner")}} {
			refused(t, other, name, options...)
			ctx, cancel := context.WithCancel(t.Context())
			waiter := locking(ctx, other, name, options...)
			e.queued(t, name, 1)
			cancel()
			is(t, within(t, soon, "the waiter gives up", waiter).err, context.Canceled)
		}
		require.NoError(t, a.guard(t.Context(), tx, held), "Guard again, after others tried")
		e.commitOne(t, tx)

		// The other way round: other transactions are in the middle of a heartbeat, and of
		// queueing.
		busy := beginTx(t, b, sql.LevelReadCommitted)
		for _, s := range []string{
			"UPDATE dblock_heartbeats SET expires_at = expires_at + 1 WHERE session_id = '" + held.Session + "'",
			"UPDATE dblock_locks SET next_ticket = next_ticket + 1 WHERE name = '" + name + "'",
		} {
			require.NoError(t, busy.exec(t.Context(), s))
		}
		tx = beginTx(t, a, level)
		require.NoError(t, a.guard(brief(t), tx, held), "Guard beside a heartbeat and a waiter in the making")
		e.commitOne(t, tx)
		rollback(t, busy)
	})
}

func guardRefused(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		l := lock(t, c, name)
		tx := beginTx(t, a, level)
		require.NoError(t, c.Guard(t.Context(), tx, l))
		e.usable(t, tx)

		unlock(t, l)
		tx = beginTx(t, a, level)
		for what, err := range map[string]error{
			"Guard": c.Guard(t.Context(), tx, l), "UnlockTx": c.UnlockTx(t.Context(), tx, l),
		} {
			if is(t, err, dblock.ErrNotHeld); errors.Is(err, dblock.ErrLost) {
				t.Errorf("%s after Unlock: %v: it was not lost", what, err)
			}
		}
		e.usable(t, tx)

		// Lost without the client's knowledge.
		l = lock(t, c, name)
		e.exec(t, "UPDATE dblock_locks SET token = token + 1, first_token = first_token + 1, last_token = "+
			"last_token + 1 WHERE name = ?", name)
		tx = beginTx(t, a, level)
		is(t, c.Guard(t.Context(), tx, l), dblock.ErrLost)
		ended(t, soon, l, dblock.ErrLost)
		is(t, c.UnlockTx(t.Context(), tx, l), dblock.ErrLost)
		e.usable(t, tx)
		e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '' WHERE name = ?", name)

		// A fixed lease that is over, although nobody has taken the lock yet.
		l = lock(t, c, name, dblock.Lease(time.Minute))
		e.exec(t, "UPDATE dblock_locks SET expires_at = 1 WHERE name = ?", name)
		tx = beginTx(t, a, level)
		is(t, c.Guard(t.Context(), tx, l), dblock.ErrLost)
		e.usable(t, tx)
		e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '', expires_at = NULL WHERE name = ?", name)

		// A context that has ended, and no transaction.
		l = lock(t, c, name)
		tx = beginTx(t, a, level)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		is(t, c.Guard(ctx, tx, l), context.Canceled)
		is(t, c.UnlockTx(ctx, tx, l), context.Canceled)
		e.usable(t, tx)
		unlock(t, l)
	})
}

// Broken by a ReleaseTx on a connection of its own.
func unlockTxCommitted(t *testing.T, e *env) {
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		l := lock(t, c, name)
		waiter := e.waiter(t, other, name)
		tx := beginTx(t, a, level)
		require.NoError(t, c.UnlockTx(t.Context(), tx, l))
		live(t, l)
		if holder := e.session(t, name); holder == "" {
			t.Fatal("the lock was free before the commit")
		}
		refused(t, c, name)
		e.usable(t, tx)
		unlock(t, l) // says that the transaction has ended
		next := granted(t, soon, waiter)
		rising(t, l.Token(), next.Token())
		ended(t, soon, l, dblock.ErrNotHeld)
		unlock(t, next)
		e.free(t, name)
	})
}

func unlockTxRolledBack(t *testing.T, e *env) {
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, options := range [][]dblock.LockOption{nil, {dblock.Shared()}} {
			l := lock(t, c, name, options...)
			waiter := e.waiter(t, other, name)
			for range 2 {
				tx := beginTx(t, a, level)
				require.NoError(t, c.UnlockTx(t.Context(), tx, l))
				rollback(t, tx)
				live(t, l)
				stillWaits(t, 0, waiter)
				tx = beginTx(t, a, level)
				require.NoError(t, c.Guard(t.Context(), tx, l), "Guard after a rollback")
				e.usable(t, tx)
			}
			unlock(t, l)
			unlock(t, granted(t, soon, waiter))
			e.idle(t, name)
		}
	})
}

// Broken by a hand-off that decides by the snapshot of the caller's transaction.
func unlockTxSnapshot(t *testing.T, e *env) {
	a := e.app(t, 5)
	other := e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		held, _ := e.takeFor(t, a, name, takeover{})
		tx := beginTx(t, a, level)
		snapshot(t, tx)
		waiter := e.waiter(t, other, name)
		err := a.release(t.Context(), tx, held)
		switch {
		case errors.Is(err, driver.ErrRetry):
			rollback(t, tx)
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), a.Backend, held, true)))
		case err != nil:
			t.Fatal(err)
		default:
			commit(t, tx)
			// as Unlock after the commit
			if _, _, err := drivertest.TakeOver(t.Context(), a.Backend, "", name, protocol.Holder{}); err != nil {
				t.Fatal(err)
			}
		}
		unlock(t, granted(t, soon, waiter))
	})
}

// promoted: a queue without a holder. On MySQL UnlockTx leaves a name so until a client notices. An
// operator may do so too.
func promoted(t *testing.T, e *env) {
	c := e.client(t)
	lock(t, c, "n")
	first := e.waiter(t, c, "n")
	second := e.waiter(t, c, "n")
	e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '' WHERE name = ?", "n")
	l := granted(t, soon, first)
	unlock(t, l)
	l = granted(t, soon, second)

	// A wrong count, because a waiter's row was deleted.
	e.exec(t, "UPDATE dblock_locks SET waiters = 1 WHERE name = ?", "n")
	unlock(t, l)
	unlock(t, lock(t, c, "n"))
	e.free(t, "n")
}

// leased takes n with a fixed lease of longTTL, and has it guard a transaction.
func (e *env) leased(t *testing.T, c Client, a App) (*dblock.Lock, Tx) {
	t.Helper()
	l, tx := lock(t, c, "n", dblock.Lease(longTTL)), beginTx(t, a, e.levels()[0])
	require.NoError(t, c.Guard(t.Context(), tx, l))
	return l, tx
}

// Broken by a client that releases what it has lost itself, without checking for transactions that
// it guards.
func guardedLeaseOver(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // nobody could write
		return
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 5)
	c, other := e.clientOf(t, a), e.client(t)
	l, tx := e.leased(t, c, a)
	waiting := e.waiter(t, other, "n")
	e.advance(t, longTTL+time.Second)
	ended(t, patience, l, dblock.ErrLost)
	e.advance(t, 2*longTTL) // a client compares what it has once in a TTL
	stillWaits(t, 0, waiting)
	if e.session(t, "n") == "" {
		t.Error("freed before the transaction ended")
	}
	e.usable(t, tx)
	e.advanceUntil(t, 2*longTTL, "the waiter has the lock", func() bool { return len(waiting) > 0 })
	unlock(t, granted(t, soon, waiting))
	e.free(t, "n")
}

func unlockTxWaits(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where the first transaction has locked everything
		return
	}
	c, l, inTheWay, tx := e.besideLockTx(t)
	const short = 300 * time.Millisecond
	unlocking := async(func() error { return c.UnlockTx(limited(t, short), tx, l) })
	is(t, within(t, patience, "UnlockTx obeys its context", unlocking), context.DeadlineExceeded)
	e.usable(t, tx)
	unlocking = async(func() error { return l.Unlock(limited(t, short)) })
	assert.Error(t, within(t, patience, "Unlock obeys its context", unlocking), "unlocked although its row is locked")
	commit(t, inTheWay)
	e.free(t, "n")
}

// besideLockTx returns a client's lock of a name, whose row a transaction of LockTx has locked, and
// another transaction.
func (e *env) besideLockTx(t *testing.T) (c Client, l *dblock.Lock, inTheWay, tx Tx) {
	t.Helper()
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 6)
	c = e.clientOf(t, a)
	l = lock(t, c, "n")
	inTheWay = beginTx(t, a, e.levels()[0])
	require.NoError(t, c.LockTx(l.Context(), inTheWay, "n")) // under its own lease
	return c, l, inTheWay, beginTx(t, a, e.levels()[0])
}

func closeEndsUnlockTx(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where the first transaction has locked everything
		return
	}
	c, l, inTheWay, tx := e.besideLockTx(t)
	unlocking, closing := make(chan error, 1), make(chan error, 1)
	go func() { unlocking <- c.UnlockTx(t.Context(), tx, l) }()
	eventually(t, patience, "UnlockTx has begun", func() bool { return l.Until().IsZero() })
	go func() { closing <- c.Close(t.Context()) }()
	is(t, within(t, patience, "Close ends UnlockTx", unlocking), dblock.ErrClosed)
	e.usable(t, tx)
	commit(t, inTheWay)
	is(t, within(t, patience, "Close returns", closing), nil)
	e.free(t, "n")
}

func guardBehindTheRow(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where the first transaction has locked everything
		return
	}
	a, c := e.appClient(t, 6)
	l := lock(t, c, "n")
	inTheWay := beginTx(t, a, e.levels()[0])
	is(t, inTheWay.exec(t.Context(), "UPDATE dblock_locks SET next_ticket = next_ticket WHERE name = 'n'"), nil)
	tx := beginTx(t, a, e.levels()[0])
	err := c.Guard(brief(t), tx, l)
	says(t, err, driver.ErrBusy, "locked the lock's row for longer than 1s")
	if strings.Contains(err.Error(), "LockTx") {
		t.Errorf("the text is %q", err)
	}
	rollback(t, inTheWay)
	is(t, c.Guard(brief(t), tx, l), nil)
	rollback(t, tx)
	unlock(t, l)
}
