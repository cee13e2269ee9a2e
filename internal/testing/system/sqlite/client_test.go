package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// patience bounds a hang: no machine needs as long.
const patience = time.Minute

// soaked is how often a test does something, and how often where scripts/soak runs it.
func soaked(usual, soak int) int {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		return usual
	}
	return soak
}

// application is a pool of its own on a file, as of another process, with a client.
type application struct {
	*dblock.Client[*sql.Tx]
	pool *sql.DB
}

func newApplication(t *testing.T, path, journal string, ttl time.Duration, settings ...string) application {
	t.Helper()
	settings = append(settings, "_pragma=synchronous(OFF)", "_pragma=busy_timeout(10000)",
		"_pragma=journal_mode("+journal+")")
	pool, err := sql.Open("sqlite", "file:"+path+"?"+strings.Join(settings, "&"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, migrate.Up(t.Context(), pool, migrate.SQLite))
	client, err := dblock.New(sqlite.New(pool), dblock.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return application{client, pool}
}

// Two processes that have opened one name may have two files. Whoever has the one that is gone
// learns of it with the next heartbeat, and not from somebody who waits for its lease to end: in
// the other file nobody has heard of that.
func TestTheHolderInAFileThatWasDeletedLosesEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	const ttl = 5 * time.Minute // whose heartbeats must not be waited for, but asked for
	a := newApplication(t, path, "WAL", ttl)
	held, err := a.Lock(t.Context(), "held")
	require.NoError(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := a.Lock(context.Background(), "held")
		waiting <- err
	}()
	require.NoError(t, os.Remove(path))
	b := newApplication(t, path, "WAL", ttl)
	if _, err := b.TryLock(t.Context(), "held"); err != nil {
		t.Fatal(err) // the second holder
	}
	assert.Error(t, held.Unlock(t.Context()), "what was held is given back where nobody looks")
	for _, err := range []error{await(t, waiting), lock(a), lock(a)} {
		if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(), "close the pool and open it again") ||
			!strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	}
}

func lock(a application) error {
	_, err := a.Lock(context.Background(), "other")
	return err
}

func await(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("nothing happens")
		return nil
	}
}

// The transaction of somebody's LockTx has locked the database: a client that has no session yet
// cannot write one.
func TestTheFirstTryLockOfAClientDoesNotWaitForATransaction(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			a := newApplication(t, path, journal, 5*time.Minute)
			tx, err := a.pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			b := newApplication(t, path, journal, 5*time.Minute)
			require.NoError(t, a.LockTx(t.Context(), tx, "in a transaction"))
			locked := make(chan error, 1)
			go func() {
				_, err := b.Lock(context.Background(), "waited for")
				locked <- err
			}()
			watching, stop := context.WithCancel(t.Context())
			defer stop()
			watched := make(chan error, 100)
			go func() {
				for _, err := range inspect.New(b.Client).Watch(watching, "watched") {
					watched <- err
				}
				close(watched)
			}()
			for range 2 { // longer than five tries
				for _, name := range []string{"in a transaction", "another"} {
					err := require.ErrOf(b.TryLock(t.Context(), name))
					require.ErrorIs(t, err, dblock.ErrNotAcquired, "TryLock", name)
					require.ErrorIs(t, err, dblock.ErrBusy, "TryLock", name)
				}
				assert.ErrorIs(t, assert.ErrOf(b.TryLockAll(t.Context(), []string{"another", "in a transaction"})),
					dblock.ErrNotAcquired, "TryLockAll")
			}
			select {
			case err := <-locked:
				t.Fatalf("Lock did not wait: %v", err)
			default:
			}
			stop()
			for err := range watched {
				assert.ErrorIs(t, err, context.Canceled, "Watch did not wait")
			}
			require.NoError(t, tx.Commit())
			assert.NoError(t, await(t, locked))
			assert.NoError(t, assert.ErrOf(b.TryLock(t.Context(), "another")))
		})
	}
}

// The goroutines pass the lock on to each other in memory. Broken by a Guard, or an UnlockTx, that
// waits until the database knows who has it: the caller's transaction is in the way.
func TestATransactionThatHasLockedTheDatabaseIsNotInTheWayOfItsOwnGuard(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		for range soaked(2, 10) {
			a := newApplication(t, filepath.Join(t.TempDir(), "locks.db"), journal, 5*time.Minute, "_txlock=immediate")
			require.NoError(t, require.ErrOf(a.pool.ExecContext(t.Context(), "CREATE TABLE app (token integer)")))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			const goroutines, times = 4, 20
			done := make(chan error, goroutines)
			for i := range goroutines {
				go func() {
					var err error
					for n := 0; n < times && err == nil; n++ {
						err = a.writeGuarded(ctx, (i+n)%3 == 0)
					}
					done <- err
				}()
			}
			for range goroutines {
				require.NoError(t, <-done)
			}
			var n, order int
			err := a.pool.QueryRowContext(t.Context(),
				"SELECT count(*), count(*) FILTER (WHERE before >= token) FROM (SELECT token, lag(token) OVER "+
					"(ORDER BY rowid) AS before FROM app)").Scan(&n, &order)
			if err != nil || n != goroutines*times || order > 0 {
				t.Fatalf("%d were written, %d of them with a token that is not above the one before: %v", n, order, err)
			}
		}
	}
}

// writeGuarded writes under a lock, and releases it with the transaction or after it.
func (a application) writeGuarded(ctx context.Context, within bool) error {
	l, err := a.Lock(ctx, "n")
	if err != nil {
		return err
	}
	tx, err := a.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := a.Guard(ctx, tx, l); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO app (token) VALUES (?)", l.Token()); err != nil {
		return err
	}
	if within {
		if err := a.UnlockTx(ctx, tx, l); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return l.Unlock(ctx)
}
