package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/internal/transaction"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

func reads(t *testing.T, tx *txtest.Tx, name string, want int64) {
	t.Helper()
	if version, err := optimistic.Read(t.Context(), tx.TX, name); err != nil || version != want {
		t.Fatalf("%s is at version %d, want %d: %v", name, version, want, err)
	}
}

func bump(t *testing.T, tx *txtest.Tx, name string, version int64) error {
	t.Helper()
	return optimistic.Bump(t.Context(), tx.TX, name, version)
}

func bumps(t *testing.T, tx *txtest.Tx, name string, version int64) {
	t.Helper()
	require.NoError(t, bump(t, tx, name, version))
}

func isConflict(t *testing.T, err error, name string, version int64) {
	t.Helper()
	var conflict *optimistic.ConflictError
	if !errors.Is(err, optimistic.ErrConflict) || !errors.As(err, &conflict) ||
		*conflict != (optimistic.ConflictError{Name: name, Version: version}) {
		t.Fatalf("got %v, want a conflict at version %d", err, version)
	}
}

// lost reports whether err is the failure that a transaction with a stale snapshot may get. Such a
// transaction never passes.
func lost(w txtest.World, err error) bool { return w.Snapshots() && transaction.Retryable(err) }

// each runs f for a name that was never bumped, and for one that was bumped twice.
func each(t *testing.T, f func(t *testing.T, w txtest.World, name string, version int64)) {
	t.Helper()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		t.Run("first", func(t *testing.T) { f(t, w, w.Name("first"), 0) })
		t.Run("later", func(t *testing.T) {
			name := w.Name("later")
			for version := range int64(2) {
				commitBump(t, w, name, version)
			}
			f(t, w, name, 2)
		})
	}, migrate.Versions)
}

func commitBump(t *testing.T, w txtest.World, name string, version int64) {
	t.Helper()
	tx := w.Begin(t)
	bumps(t, tx, name, version)
	tx.Commit()
}

func TestAVersionIsBumpedOnceAndALoserGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, name string, version int64) {
		tx := w.Begin(t)
		reads(t, tx, name, version)
		bumps(t, tx, name, version)
		reads(t, tx, name, version+1)
		isConflict(t, bump(t, tx, name, version), name, version)
		tx.GoesOn()
		bumps(t, tx, name, version+1)
		tx.Commit()
		tx = w.Begin(t)
		for old := range version + 2 {
			isConflict(t, bump(t, tx, name, old), name, old)
		}
		isConflict(t, bump(t, tx, name, version+3), name, version+3)
		tx.GoesOn()
		reads(t, tx, name, version+2)
		bumps(t, tx, name, version+2)
		tx.Rollback()
		tx = w.Begin(t)
		reads(t, tx, name, version+2)
		tx.Rollback()
	})
}

// A version that is ahead of a name without a row must not make one.
func TestAVersionThatNeverWasIsAConflict(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		name := w.Name("never")
		tx := w.Begin(t)
		isConflict(t, bump(t, tx, name, 5), name, 5)
		tx.GoesOn()
		tx.Commit()
		tx = w.Begin(t)
		reads(t, tx, name, 0)
		bumps(t, tx, name, 0)
		tx.Commit()
	}, migrate.Versions)
}

func TestTheSecondBumpWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, name string, version int64) {
		for _, end := range []string{"rollback", "commit"} {
			first, second := w.Begin(t), w.Begin(t)
			if w.Engine != migrate.MySQL || w.Level != sql.LevelSerializable { // there a plain read locks
				reads(t, first, name, version)
				reads(t, second, name, version)
			}
			bumps(t, first, name, version)
			if w.Engine == migrate.SQLite {
				second.Rollback() // there a transaction that has read cannot wait for the write lock
				second = w.Begin(t)
			}
			result := w.Waiting(t, second, func() error { return bump(t, second, name, version) })
			if end == "rollback" {
				first.Rollback()
				require.NoError(t, result())
			} else {
				first.Commit()
				if err := result(); !lost(w, err) {
					isConflict(t, err, name, version)
				}
			}
			second.Rollback()
		}
	})
}

func TestAnOldSnapshotIsNoYes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, name string, version int64) {
		if w.Engine == migrate.MySQL && w.Level == sql.LevelSerializable {
			return // a plain read locks: no other transaction can come in between
		}
		old := w.Begin(t)
		reads(t, old, name, version)
		commitBump(t, w, name, version)
		if w.Snapshots() {
			reads(t, old, name, version)
		}
		if err := bump(t, old, name, version); !lost(w, err) {
			isConflict(t, err, name, version)
		}
		old.Rollback()
	})
}

// Six goroutines increment one row by reading and writing it, the worst case for versions. No
// update is lost.
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		if w.Level == sql.LevelReadUncommitted {
			return // there a version can be read before its data: see the package comment
		}
		const workers, rounds = 6, 5
		setup := w.Begin(t)
		setup.Exec("DELETE FROM app_rows")
		setup.Exec("INSERT INTO app_rows (n) VALUES (0)")
		setup.Commit()
		name := w.Name("counter")
		results := make(chan error, workers)
		for range workers {
			go func() {
				for range rounds {
					err := optimistic.Retry(t.Context(), func(ctx context.Context) error {
						return w.InTx(ctx, func(tx *txtest.Tx) error {
							version, err := optimistic.Read(ctx, tx.TX, name)
							if err != nil {
								return err
							}
							var n int
							if err := tx.Query(ctx, "SELECT n FROM app_rows", &n); err != nil {
								return err
							}
							if err := optimistic.Bump(ctx, tx.TX, name, version); err != nil {
								return err
							}
							return tx.Run(ctx, fmt.Sprintf("UPDATE app_rows SET n = %d", n+1))
						})
					}, optimistic.Attempts(1000), optimistic.Backoff(time.Millisecond, 20*time.Millisecond))
					if err != nil {
						results <- err
						return
					}
				}
				results <- nil
			}()
		}
		for range workers {
			assert.NoError(t, <-results)
		}
		tx := w.Begin(t)
		reads(t, tx, name, workers*rounds)
		if n := tx.Number("SELECT n FROM app_rows"); n != workers*rounds {
			t.Errorf("%d updates of %d are left", n, workers*rounds)
		}
		tx.Rollback()
	}, migrate.Versions)
}
