package suite

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
)

var mistakes = inPlaces(own{
	{"a transaction that has ended is told as such, and the lock stays as it was", endedTx},
})

func endedTx(t *testing.T, e *env) {
	a := e.app(t, 6)
	c := e.clientOf(t, a)
	l := lock(t, c, "held")
	for _, end := range []func(testing.TB, Tx){commit, rollback} {
		tx := beginTx(t, a, e.levels()[0])
		end(t, tx)
		for what, call := range map[string]func(ctx context.Context) error{
			"Guard":     func(ctx context.Context) error { return l.Guard(ctx, tx) },
			"UnlockTx":  func(ctx context.Context) error { return l.UnlockTx(ctx, tx) },
			"LockTx":    func(ctx context.Context) error { return c.LockTx(ctx, tx, "free") },
			"TryLockTx": func(ctx context.Context) error { return c.TryLockTx(ctx, tx, "free") },
		} {
			err := call(brief(t))
			if !errors.Is(err, dblock.ErrTxDone) || !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, dblock.ErrUnavailable) {
				t.Errorf("%s in a transaction that has ended: %v", what, err)
			}
		}
	}
	if l.Context().Err() != nil {
		t.Error("the lock was lost")
	}
	unlock(t, l)
}
