package fence

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// kinds runs f once for each kind of transaction, at one isolation level, for tests that do not
// depend on levels.
func kinds(t *testing.T, f func(t *testing.T, w txtest.World)) {
	t.Helper()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		if w.Default() {
			f(t, w)
		}
	}, migrate.Fences)
}

// settings returns the settings of the caller's session that Check borrows, as one text.
var settings = map[migrate.Engine]string{
	migrate.Postgres: "SHOW lock_timeout",
	migrate.MySQL:    "SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '')",
	migrate.SQLite:   "PRAGMA busy_timeout",
}

// lend sets those settings.
var lend = map[migrate.Engine]string{
	migrate.Postgres: "SET LOCAL lock_timeout = '300ms'",
	migrate.MySQL:    "SET SESSION innodb_lock_wait_timeout = 1",
	migrate.SQLite:   "PRAGMA busy_timeout = 300",
}

// The end of the context ends the wait, and not the transaction.
func TestTheContextEndsTheWaitAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		for _, how := range []string{"deadline", "cancel"} {
			resource := w.Name(how)
			holder, waiter := w.Begin(t), w.Begin(t)
			passes(t, holder, resource, 7)
			deadline := dbtest.Scale(500 * time.Millisecond) // by then the wait is seen from outside
			if w.Engine == migrate.SQLite {
				// It has one writer, and waits for as long as the application says.
				deadline = 200 * time.Millisecond
				waiter.Set(lend[w.Engine])
			} else {
				waiter.GoesOn()
			}
			before := waiter.Text(settings[w.Engine])
			ctx, cancel := context.WithCancel(t.Context())
			want := context.Canceled
			if how == "deadline" {
				ctx, cancel = context.WithTimeout(t.Context(), deadline)
				want = context.DeadlineExceeded
			}
			result := w.Waiting(t, waiter, func() error { return fence.Check(ctx, waiter.TX, resource, 8) })
			if how == "cancel" {
				cancel()
			}
			err := result()
			require.ErrorIs(t, err, want)
			if errors.Is(err, fence.ErrRetry) {
				t.Errorf("the transaction can go on: %v", err)
			}
			cancel()
			assert.Equal(t, waiter.Text(settings[w.Engine]), before, "the caller's patience")
			holder.Rollback()
			waiter.GoesOn()
			passes(t, waiter, resource, 8)
			assert.Equal(t, waiter.Text(settings[w.Engine]), before, "the caller's patience")
			waiter.Commit()
		}
	})
}

// The caller's own limit ends the wait too, with the engine's error, and is as it was afterwards.
func TestTheCallersOwnPatienceHolds(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		resource := w.Name("patience")
		holder, waiter := w.Begin(t), w.Begin(t)
		passes(t, holder, resource, 7)
		old := waiter.Text(settings[w.Engine])
		waiter.Set(lend[w.Engine])
		before := waiter.Text(settings[w.Engine])
		if before == old {
			t.Fatalf("nothing was set: %s", old)
		}
		start := time.Now()
		if err := check(t, waiter, resource, 8); err == nil || errors.Is(err, context.Canceled) ||
			time.Since(start) > 5*time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		assert.Equal(t, waiter.Text(settings[w.Engine]), before, "the caller's patience")
		holder.Rollback()
		passes(t, waiter, resource, 8)
		waiter.GoesOn()
		assert.Equal(t, waiter.Text(settings[w.Engine]), before, "the caller's patience")
		waiter.Rollback()
	})
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, fence.Check(ctx, tx.TX, w.Name("ended"), 7), context.Canceled)
		tx.GoesOn()
		tx.Rollback()
	})
}

// Two transactions wait for each other: one gets the deadlock error, whatever the turns of waiting.
func TestADeadlockIsFound(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		if w.Engine == migrate.SQLite {
			return // one writer
		}
		a, b := w.Name("deadlock a"), w.Name("deadlock b")
		one, two := w.Begin(t), w.Begin(t)
		passes(t, one, a, 7)
		passes(t, two, b, 7)
		done := make(chan error, 2)
		cross := func(tx *txtest.Tx, resource string) {
			err := check(t, tx, resource, 7)
			if err != nil && w.Engine == migrate.Postgres { // nowhere else does the transaction outlive a deadlock
				err = errors.Join(err, tx.Run(t.Context(), "INSERT INTO app_rows (n) VALUES (1)"))
			}
			done <- errors.Join(err, tx.TryRollback())
		}
		go cross(one, b)
		go cross(two, a)
		first, second := <-done, <-done
		if first == nil {
			first, second = second, first
		}
		if !errors.Is(first, fence.ErrRetry) || second != nil {
			t.Errorf("%v, %v", first, second)
		}
	})
}

// missing is the text for a missing table: it names the place, and what to run.
var missing = regexp.MustCompile(`dblock_fences is not in (database|file) "[^"]+"(, schema "public")?; ` +
	`run migrate\.Up\(ctx, db, engine, migrate\.Fences\): `)

func TestAMissingTableIsNamedAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		err := check(t, tx, "a", 7)
		if !errors.Is(err, fence.ErrSchema) || !missing.MatchString(err.Error()) {
			t.Error(err)
		}
		tx.GoesOn()
		tx.Commit()
	})
}

func TestAReadOnlyTransactionIsNamedAsTheCause(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		switch w.Engine {
		case migrate.Postgres:
			tx.Exec("SET TRANSACTION READ ONLY")
		case migrate.SQLite:
			tx.Exec("PRAGMA query_only = 1")
			defer tx.Exec("PRAGMA query_only = 0")
		default: // its driver cannot be told after BEGIN
			tx.Rollback()
			read, err := w.DB.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
			require.NoError(t, err)
			defer read.Rollback()
			readOnly(t, fence.Check(t.Context(), read, "a", 7))
			return
		}
		readOnly(t, check(t, tx, "a", 7))
	})
}

func readOnly(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrReadOnly) ||
		!strings.Contains(err.Error(), "begin the transaction without READ ONLY") {
		t.Error(err)
	}
}

// The caller's own savepoint has the same name, and stays in place.
func TestTheCallersSavepointIsKept(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		resource := w.Name("savepoint")
		tx := w.Begin(t)
		tx.Exec("SAVEPOINT dblock")
		passes(t, tx, resource, 8)
		isStale(t, check(t, tx, resource, 7), resource, 7, 8)
		tx.Exec("ROLLBACK TO SAVEPOINT dblock")
		passes(t, tx, resource, 7)
		tx.Rollback()
	})
}

// A transaction that was aborted before gets the server's own error.
func TestATransactionThatIsAbortedAlready(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		if w.Engine != migrate.Postgres {
			return
		}
		tx := w.Begin(t)
		tx.Exec("SAVEPOINT dblock")
		_ = tx.Run(t.Context(), "SELECT 1/0")
		var state interface{ SQLState() string }
		if err := check(t, tx, "a", 7); !errors.As(err, &state) || state.SQLState() != "25P02" {
			t.Error(err)
		}
		tx.Exec("ROLLBACK TO SAVEPOINT dblock")
		tx.GoesOn()
		tx.Rollback()
	})
}

func TestATransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		tx.Commit()
		if err := check(t, tx, "a", 7); err == nil || errors.Is(err, fence.ErrSchema) {
			t.Error(err)
		}
	})
}

// With this setting rows count as affected when they are found, changed or not.
func TestMySQLsFoundRowsChangeNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			db.DSN, _, _ = strings.Cut(db.DSN, "?")
			db.DSN += "?clientFoundRows=true&interpolateParams=true&autocommit=0&character_set_connection=latin1"
			w := txtest.New(t, db, migrate.Fences)
			seen(t, w, "ä", 8)
			tx := w.Begin(t)
			isStale(t, check(t, tx, "ä", 7), "ä", 7, 8)
			passes(t, tx, "ä", 8)
			assert.Equal(t, tx.Number("SELECT count(*) FROM dblock_fences WHERE resource = x'C3A4'"), 1, "rows")
			tx.Rollback()
		})
	}
}
