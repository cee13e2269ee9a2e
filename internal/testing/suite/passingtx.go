package suite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by Guard that goes by the token from before alone. On servers it waits for the answer.
func guardedWhileShown(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	r := e.relay(t, "n", 3)
	r.answer = make(chan struct{})
	answer := sync.OnceFunc(func() { close(r.answer) })
	t.Cleanup(answer)
	l := r.second(t)
	r.heldForLong(t, e, l)
	time.AfterFunc(50*time.Millisecond, answer)
	tx := beginTx(t, r.app, e.readCommitted())
	assert.NoError(t, r.client.Guard(t.Context(), tx, l))
	commit(t, tx)
	live(t, l)
	unlock(t, l)
	r.rest(t, e, l, r.waiters[2])
}

func guardedAfterPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 3)
	tx := beginTx(t, r.app, e.readCommitted())
	l := r.second(t)
	is(t, r.client.Guard(t.Context(), tx, l), nil)
	released := unlocking(l)
	stillOpen(t, r.waiters[2])
	commit(t, tx)
	is(t, within(t, soon, "Unlock returns", released), nil)
	r.rest(t, e, l, r.waiters[2])
}

// stillOpen checks that nobody has the lock while a transaction is open that its last holder has
// guarded.
func stillOpen(t testing.TB, waiter <-chan outcome) {
	t.Helper()
	select {
	case o := <-waiter:
		t.Fatalf("the next has the lock before the transaction has ended: %v, %v", o.lock, o.err)
	case <-time.After(100 * time.Millisecond):
	}
}

func unlockTxAfterPassing(t *testing.T, e *env) {
	r := e.relay(t, "n", 3)
	tx := beginTx(t, r.app, e.readCommitted())
	l := r.second(t)
	require.NoError(t, r.client.UnlockTx(t.Context(), tx, l))
	stillOpen(t, r.waiters[2])
	commit(t, tx)
	_, err := r.client.TryLock(l.Context(), "n") // the third waits
	is(t, err, dblock.ErrNotAcquired)
	is(t, l.Unlock(context.Background()), nil)
	r.rest(t, e, l, r.waiters[2])
}

// writer has a lock passed on, and opens a transaction that has written: on SQLite no statement
// that detaches its holder can run before the transaction ends.
func (e *env) writer(t *testing.T, name string) (r *relay, l *dblock.Lock, tx Tx) {
	t.Helper()
	r = e.relay(t, name, 4)
	tx = beginTx(t, r.app, e.readCommitted())
	l = r.second(t)
	require.NoError(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"))
	return r, l, tx
}

// Broken by waiting until the holder is detached.
func guardedByAWriter(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	r, l, tx := e.writer(t, "n")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, r.client.Guard(ctx, tx, l))
	commit(t, tx)
	live(t, l)
	unlock(t, l)
	r.rest(t, e, l, r.waiters[2:]...)
}

// Broken likewise, and by an Unlock that takes what the transaction has released for a loss.
func releasedByAWriter(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	for end, finish := range map[string]func(testing.TB, Tx){"commit": commit, "rollback": rollback} {
		r, l, tx := e.writer(t, end)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		require.NoError(t, r.client.UnlockTx(ctx, tx, l))
		stillOpen(t, r.waiters[2])
		finish(t, tx)
		live(t, l)
		if end == "rollback" && len(r.waiters[2]) > 0 {
			t.Error("the next has the lock after a rollback")
		}
		assert.NoError(t, within(t, soon, "unlocked", unlocking(l)), end)
		if end == "commit" {
			r.rest(t, e, l, r.waiters[2:]...)
		} else {
			r.anew(t, e, l, r.waiters[2:]...)
		}
	}
}

// Broken by a LockTx that waits while the database shows another member as the holder: the next
// heartbeat but one shows the right one, and comes after a long time here.
func cycleThroughLockTx(t *testing.T, e *env) {
	options := []dblock.Option{dblock.WithTTL(time.Hour), dblock.WithDeadlockCheck(50 * time.Millisecond)}
	r := e.relay(t, "n", 3, options...)
	other := e.client(t, options...)
	m := lock(t, other, "m")
	l := r.second(t)
	back := locking(m.Context(), other, "n") // behind the third
	e.queued(t, "n", 1)
	tx := beginTx(t, r.app, e.levels()[0])
	ahead := make(chan error, 1)
	go func() { ahead <- r.client.LockTx(l.Context(), tx, "m") }()
	select {
	case o := <-back:
		is(t, o.err, dblock.ErrDeadlock)
		unlock(t, m)
		is(t, within(t, soon, "LockTx has it", ahead), nil)
		rollback(t, tx)
		unlock(t, l)
		unlock(t, granted(t, soon, r.waiters[2]))
	case err := <-ahead:
		is(t, err, dblock.ErrDeadlock)
		rollback(t, tx)
		unlock(t, l)
		unlock(t, granted(t, soon, r.waiters[2]))
		unlock(t, granted(t, soon, back))
		unlock(t, m)
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
}
