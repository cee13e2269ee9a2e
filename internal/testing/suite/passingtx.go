package suite

import (
	"context"
	"fmt"
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

// txAfterPassing has a lock passed on, and a transaction of the application's to guard or release
// it. On SQLite no statement that detaches the holder can run before one that has written ends.
func (e *env) txAfterPassing(t *testing.T, test func(r *relay, l *dblock.Lock, tx Tx)) {
	e.exec(t, "CREATE TABLE IF NOT EXISTS app (n integer)")
	for _, wrote := range []bool{false, true} {
		r := e.relay(t, fmt.Sprint("n ", wrote), 4)
		tx := beginTx(t, r.app, e.readCommitted())
		l := r.second(t)
		if wrote {
			require.NoError(t, tx.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"))
		}
		test(r, l, tx)
	}
}

// Broken by waiting until the holder is detached.
func guardedAfterPassing(t *testing.T, e *env) {
	e.txAfterPassing(t, func(r *relay, l *dblock.Lock, tx Tx) {
		require.NoError(t, r.client.Guard(brief(t), tx, l))
		released := unlocking(l)
		stillWaits(t, 100*time.Millisecond, r.waiters[2])
		commit(t, tx)
		is(t, within(t, soon, "Unlock returns", released), nil)
		r.rest(t, e, l, r.waiters[2:]...)
	})
}

// Broken likewise, and by an Unlock that takes what the transaction has released for a loss.
func releasedAfterPassing(t *testing.T, e *env) {
	for end, finish := range map[string]func(testing.TB, Tx){"commit": commit, "rollback": rollback} {
		t.Run(end, func(t *testing.T) {
			e.txAfterPassing(t, func(r *relay, l *dblock.Lock, tx Tx) {
				require.NoError(t, r.client.UnlockTx(brief(t), tx, l))
				stillWaits(t, 100*time.Millisecond, r.waiters[2])
				finish(t, tx)
				live(t, l)
				if end == "rollback" {
					stillWaits(t, 0, r.waiters[2])
				}
				is(t, within(t, soon, "Unlock returns", unlocking(l)), nil)
				if end == "commit" {
					r.rest(t, e, l, r.waiters[2:]...)
				} else {
					r.anew(t, e, l, r.waiters[2:]...)
				}
			})
		})
	}
}

// Broken by a LockTx that waits while the database shows another member as the holder: the next
// heartbeat but one shows the right one, and comes after a long time here.
func cycleThroughLockTx(t *testing.T, e *env) {
	for _, how := range []string{"Lock", "LockTx"} {
		options := []dblock.Option{dblock.WithDeadlockCheck(50 * time.Millisecond)}
		if how == "LockTx" {
			options = append(options, dblock.WithTTL(time.Hour))
		}
		r := e.relay(t, how, 3, options...)
		other := e.client(t, options...)
		m := lock(t, other, "m")
		l := r.second(t)
		back := locking(m.Context(), other, how) // behind the third
		e.queued(t, how, 1)
		wait, end := func() error {
			return r.client.Do(l.Context(), "m", func(context.Context, *dblock.Lock) error { return nil })
		}, func() {}
		if how == "LockTx" {
			tx := beginTx(t, r.app, e.levels()[0])
			wait, end = func() error { return r.client.LockTx(l.Context(), tx, "m") }, func() { rollback(t, tx) }
		}
		ahead := async(wait)
		select {
		case o := <-back:
			is(t, o.err, dblock.ErrDeadlock)
			unlock(t, m)
			is(t, within(t, soon, "the other goes on", ahead), nil)
			end()
			unlock(t, l)
			unlock(t, granted(t, soon, r.waiters[2]))
		case err := <-ahead:
			is(t, err, dblock.ErrDeadlock)
			end()
			unlock(t, l)
			unlock(t, granted(t, soon, r.waiters[2]))
			unlock(t, granted(t, soon, back))
			unlock(t, m)
		case <-time.After(patience):
			t.Fatal("nobody is told")
		}
	}
}
