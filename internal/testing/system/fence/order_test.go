package fence

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/internal/transaction"
	"github.com/dblock-go/dblock/migrate"
)

func check(t *testing.T, tx *txtest.Tx, resource string, token int64) error {
	t.Helper()
	return fence.Check(t.Context(), tx.TX, resource, token)
}

func passes(t *testing.T, tx *txtest.Tx, resource string, token int64) {
	t.Helper()
	require.NoError(t, check(t, tx, resource, token))
}

// seen commits a transaction that checks a token.
func seen(t *testing.T, w txtest.World, resource string, token int64) {
	t.Helper()
	tx := w.Begin(t)
	passes(t, tx, resource, token)
	tx.Commit()
}

func isStale(t *testing.T, err error, resource string, token, highest int64) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) ||
		*stale != (fence.StaleError{Resource: resource, Token: token, Highest: highest}) {
		t.Fatalf("got %v, want token %d refused for %d", err, token, highest)
	}
}

// lost reports whether err is the failure that a transaction with a stale snapshot may get. Such a
// transaction never passes.
func lost(w txtest.World, err error) bool { return w.Snapshots() && transaction.Retryable(err) }

func each(t *testing.T, f func(t *testing.T, w txtest.World, resource string)) {
	t.Helper()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		for _, known := range []bool{false, true} {
			name := map[bool]string{false: "unknown resource", true: "known resource"}[known]
			t.Run(name, func(t *testing.T) {
				resource := w.Name(name)
				if known {
					seen(t, w, resource, 6)
				}
				f(t, w, resource)
			})
		}
	}, migrate.Fences)
}

func TestALowerTokenIsRefusedAndItsTransactionGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		seen(t, w, resource, 8)
		tx := w.Begin(t)
		isStale(t, check(t, tx, resource, 7), resource, 7, 8)
		tx.GoesOn()
		passes(t, tx, resource, 8) // the same holder
		passes(t, tx, resource, 9)
		isStale(t, check(t, tx, resource, 8), resource, 8, 9)
		tx.GoesOn()
		tx.Commit()
		tx = w.Begin(t)
		isStale(t, check(t, tx, resource, 8), resource, 8, 9)
		tx.Rollback()
	})
}

func TestALowerTokenWaitsForAnOpenHigherOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		for _, old := range []bool{false, true} {
			high, low := w.Begin(t), w.Begin(t)
			if old {
				low.Snapshot()
			}
			passes(t, high, resource, 8)
			result := w.Waiting(t, low, func() error { return check(t, low, resource, 7) })
			high.Commit()
			if err := result(); !lost(w, err) {
				isStale(t, err, resource, 7, 8)
			}
			low.Rollback()
		}
	})
}

func TestALowerTokenPassesAfterTheHigherOneIsRolledBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		high, low := w.Begin(t), w.Begin(t)
		passes(t, high, resource, 8)
		result := w.Waiting(t, low, func() error { return check(t, low, resource, 7) })
		high.Rollback()
		require.NoError(t, result())
		low.Commit()
		tx := w.Begin(t)
		isStale(t, check(t, tx, resource, 6), resource, 6, 7)
		tx.Rollback()
	})
}

// What is written under two tokens never mixes: the higher waits for the lower, which has passed.
func TestAHigherTokenWaitsForAnOpenLowerOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		for _, token := range []int64{7, 8} { // the same one too
			low, high := w.Begin(t), w.Begin(t)
			passes(t, low, resource, 7)
			result := w.Waiting(t, high, func() error { return check(t, high, resource, token) })
			low.GoesOn()
			low.Commit()
			if err := result(); lost(w, err) {
				high.Rollback()
				high = w.Begin(t)
				passes(t, high, resource, token)
			} else if err != nil {
				t.Fatal(err)
			}
			high.Commit()
		}
		tx := w.Begin(t)
		isStale(t, check(t, tx, resource, 7), resource, 7, 8)
		tx.Rollback()
	})
}

func TestAnOldSnapshotIsNoYes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		low := w.Begin(t)
		low.Snapshot()
		if w.Engine == migrate.MySQL { // from here on a plain read sees this row
			low.Number("SELECT COALESCE(MAX(token), 0) FROM dblock_fences WHERE resource = '" + resource + "'")
		}
		// On MySQL at SERIALIZABLE that read locks: no other transaction can come in between.
		if w.Engine == migrate.MySQL && w.Level.String() == "Serializable" {
			passes(t, low, resource, 7)
			low.Rollback()
			return
		}
		seen(t, w, resource, 8)
		if err := check(t, low, resource, 7); !lost(w, err) {
			isStale(t, err, resource, 7, 8)
		}
		low.Rollback()
	})
}

// Each Check writes. So above READ COMMITTED PostgreSQL refuses a next holder with a snapshot older
// than the last holder's writes.
func TestTheNextHoldersOldSnapshotIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		if w.Engine != migrate.Postgres || !w.Snapshots() {
			return
		}
		seen(t, w, resource, 7)
		next := w.Begin(t)
		next.Snapshot()
		seen(t, w, resource, 7)
		if err := check(t, next, resource, 8); !errors.Is(err, fence.ErrRetry) {
			t.Fatal(err)
		}
		next.GoesOn()
		next.Rollback()
	})
}

// On PostgreSQL a refusal releases the row, and no transaction waits for one that was refused.
func TestARefusedTransactionIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w txtest.World, resource string) {
		if w.Engine != migrate.Postgres {
			return
		}
		seen(t, w, resource, 8)
		low := w.Begin(t)
		isStale(t, check(t, low, resource, 7), resource, 7, 8)
		seen(t, w, resource, 9)
		low.GoesOn()
		low.Rollback()
	})
}

// Several transactions check the same new resource, and the first is rolled back. A locking read of
// a missing row would let two of them lock the same gap.
func TestManyBringTheSameResource(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		for _, first := range []string{"commits", "is rolled back"} {
			resource := w.Name("many: the first " + first)
			one, two := w.Begin(t), w.Begin(t)
			passes(t, one, resource, 7)
			result := w.Waiting(t, two, func() error { return check(t, two, resource, 8) })
			if first == "commits" {
				one.Commit()
			} else {
				one.Rollback()
			}
			if err := result(); lost(w, err) && first == "commits" {
				two.Rollback()
				continue
			} else if err != nil {
				t.Fatalf("when the first %s: %v", first, err)
			}
			two.Commit()
		}
	}, migrate.Fences)
}

func TestResourcesAreComparedByteForByte(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		tx := w.Begin(t)
		for i, resource := range []string{"a", "A", "a ", "ä", "a\u0308", "ß", "ss", "\u200da", `a'\%_"`, "😀",
			strings.Repeat("x", 255)} {
			passes(t, tx, resource, int64(100-i))
		}
		tx.Rollback()
	}, migrate.Fences)
}

// Two transactions at once find no row. If each began with a locking read, both would lock the gap,
// and the inserts would deadlock.
func TestTwoBringANewResourceAtOnceWithoutADeadlock(t *testing.T) {
	t.Parallel()
	txtest.Each(t, func(t *testing.T, w txtest.World) {
		if w.Engine != migrate.MySQL {
			return
		}
		for round := range 20 {
			resource := w.Name(fmt.Sprint("at once ", round))
			one, two := w.Begin(t), w.Begin(t)
			results := make(chan error, 2)
			for _, tx := range []*txtest.Tx{one, two} {
				go func() {
					err := errors.Join(fence.Check(t.Context(), tx.TX, resource, 7), tx.TryCommit())
					if changed := new(mysql.MySQLError); errors.As(err, &changed) && changed.Number == 1020 {
						err = nil // the application runs the transaction again: MariaDB 11.8 has snapshot isolation
					}
					results <- err
				}()
			}
			require.NoError(t, errors.Join(<-results, <-results))
		}
	}, migrate.Fences)
}
