package optimistic

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// missing is the text for a missing table: it names the place, and what to run.
var missing = regexp.MustCompile(`dblock_versions is not in (database|file) "[^"]+"(, schema "public")?; ` +
	`run migrate\.Up\(ctx, db, engine, migrate\.Versions\): `)

func TestAMissingTableIsNamedAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		_, readErr := optimistic.Read(t.Context(), tx.TX, "a")
		for _, err := range []error{readErr, bump(t, tx, "a", 0), bump(t, tx, "a", 1)} {
			if !errors.Is(err, optimistic.ErrSchema) || !missing.MatchString(err.Error()) {
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
		if w.Engine == migrate.SQLite { // it waits for as long as the application says
			waiter.Set("PRAGMA busy_timeout = 300")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, optimistic.Bump(ctx, waiter.TX, name, 0), context.DeadlineExceeded)
		holder.Rollback()
		waiter.GoesOn()
		bumps(t, waiter, name, 0)
		waiter.Commit()
	}, migrate.Versions)
}
