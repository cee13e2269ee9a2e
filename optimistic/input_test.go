package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/txtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	tx := new(sql.Tx) // a statement in it would panic
	for want, err := range map[string]error{
		"the name is empty":         optimistic.Bump(t.Context(), tx, "", 1),
		"256 bytes":                 optimistic.Bump(t.Context(), tx, strings.Repeat("ä", 128), 1),
		"version -1":                optimistic.Bump(t.Context(), tx, "a", -1),
		"the transaction is nil":    optimistic.Bump(t.Context(), (*sql.Tx)(nil), "a", 1),
		"a *sql.DB is neither":      optimistic.Bump(t.Context(), new(sql.DB), "a", 1),
		"the context is nil":        optimistic.Bump(nil, tx, "a", 1), //lint:ignore SA1012 that is the test
		`read the version of "\xff`: second(optimistic.Read(t.Context(), tx, "\xff")),
		"contains NUL":              second(optimistic.Read(t.Context(), tx, "\x00")),
		"a string is neither":       second(optimistic.Read(t.Context(), "tx", "a")),
	} {
		if !errors.Is(err, optimistic.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func second(_ int64, err error) error { return err }

func TestAMissingTableIsNamedAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		_, readErr := optimistic.Read(t.Context(), tx.TX, "a")
		for _, err := range []error{readErr, bump(t, tx, "a", 0), bump(t, tx, "a", 1)} {
			if !errors.Is(err, optimistic.ErrSchema) || !strings.Contains(err.Error(), "dblock_versions is not there; run migrate.Up(ctx, db, engine, migrate.Versions)") {
				t.Error(err)
			}
			tx.GoesOn()
		}
		tx.Commit()
	})
}

func TestTheContextEndsTheWaitAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		if !w.Default() {
			return
		}
		name := w.Name("context")
		holder, waiter := w.Begin(t), w.Begin(t)
		bumps(t, holder, name, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := optimistic.Bump(ctx, waiter.TX, name, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		holder.Rollback()
		waiter.GoesOn()
		bumps(t, waiter, name, 0)
		waiter.Commit()
	}, migrate.Versions)
}
