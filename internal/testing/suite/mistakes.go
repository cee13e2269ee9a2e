package suite

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

var mistakes = inPlaces(own{
	{"a transaction that has ended is told as such, and the lock stays as it was", endedTx},
	{"Guard and UnlockTx refuse the lock of another client, and name it", foreignLock},
	{"Guard and UnlockTx of several locks name the one that was lost, and a rollback undoes the rest", severalInTx},
})

// inTx are the calls for locks in a transaction.
func (c Client) inTx() map[string]func(ctx context.Context, tx Tx, locks ...*dblock.Lock) error {
	return map[string]func(ctx context.Context, tx Tx, locks ...*dblock.Lock) error{"Guard": c.Guard,
		"UnlockTx": c.UnlockTx}
}

// foreignLock: the lock of another client is refused before the transaction is touched. The locks
// beside it stay as they were.
func foreignLock(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	own, foreign := lock(t, c, "own"), lock(t, other, "foreign")
	tx := beginTx(t, a, e.levels()[0])
	commit(t, tx)
	for what, call := range c.inTx() {
		err := call(brief(t), tx, own, foreign)
		var named *dblock.LockError
		if !errors.Is(err, dblock.ErrInvalidOption) || !errors.As(err, &named) || named.Name != "foreign" {
			t.Errorf("%s of another client's lock: %v", what, err)
		}
		is(t, call(brief(t), tx), dblock.ErrInvalidOption)
		is(t, call(brief(t), tx, own, nil), dblock.ErrInvalidOption)
	}
	live(t, own)
	live(t, foreign)
	unlock(t, own)
	unlock(t, foreign)
}

// severalInTx also gives a lock twice, which is one.
func severalInTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c, other := e.clientOf(t, a), e.client(t)
	level := e.levels()[0]
	all, err := c.LockAll(t.Context(), []string{"c", "a", "b"})
	is(t, err, nil)
	tx := beginTx(t, a, level)
	is(t, c.Guard(t.Context(), tx, append(all.All(), all.All()[0])...), nil)
	is(t, c.UnlockTx(t.Context(), tx, append(all.All(), all.All()[0])...), nil)
	commit(t, tx)
	is(t, all.Unlock(t.Context()), nil)
	for _, name := range all.Names() {
		e.free(t, name)
	}

	all, err = c.LockAll(t.Context(), []string{"a", "b", "c"})
	is(t, err, nil)
	if n, err := other.Break(t.Context(), "b", "a test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for what, call := range c.inTx() {
		tx := beginTx(t, a, level)
		err := call(t.Context(), tx, all.All()...)
		var named *dblock.LockError
		if !errors.Is(err, dblock.ErrLost) || !errors.As(err, &named) || named.Name != "b" {
			t.Errorf("%s: %v", what, err)
		}
		rollback(t, tx)
	}
	tx = beginTx(t, a, level)
	is(t, c.Guard(t.Context(), tx, all.All()[0], all.All()[2]), nil)
	commit(t, tx)
	is(t, all.Unlock(t.Context()), dblock.ErrLost)
	e.free(t, "a")
	e.free(t, "c")
}

func endedTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c := e.clientOf(t, a)
	l := lock(t, c, "held")
	for _, end := range []func(testing.TB, Tx){commit, rollback} {
		tx := beginTx(t, a, e.levels()[0])
		end(t, tx)
		for what, call := range map[string]func(ctx context.Context) error{
			"Guard":     func(ctx context.Context) error { return c.Guard(ctx, tx, l) },
			"UnlockTx":  func(ctx context.Context) error { return c.UnlockTx(ctx, tx, l) },
			"LockTx":    func(ctx context.Context) error { return c.LockTx(ctx, tx, "free") },
			"TryLockTx": func(ctx context.Context) error { return c.TryLockTx(ctx, tx, "free") },
		} {
			err := call(brief(t))
			drivers := errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed)
			if !errors.Is(err, dblock.ErrTxDone) || !drivers || errors.Is(err, dblock.ErrUnavailable) {
				t.Errorf("%s in a transaction that has ended: %v", what, err)
			}
		}
	}
	assert.NoError(t, l.Context().Err(), "the lock was lost")
	unlock(t, l)
}
