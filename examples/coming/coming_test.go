package coming

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/fence"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// inMemory is an application with the tables in memory.
func inMemory(t *testing.T) *dblocktest.Fake[*sql.Tx] { return dblocktest.New[*sql.Tx](t) }

// onSQLite is an application with a table of invoices that has invoice 42.
func onSQLite(t *testing.T) *dblocktest.Database {
	d := dblocktest.SQLite(t)
	for _, statement := range []string{
		"CREATE TABLE invoices (id TEXT PRIMARY KEY, paid INTEGER NOT NULL)", "INSERT INTO invoices VALUES ('42', 0)",
	} {
		_, err := d.DB.Exec(statement)
		require.NoError(t, err)
	}
	return d
}

func paid(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT paid FROM invoices WHERE id = '42'").Scan(&n))
	return n
}

// pay writes in a transaction.
func pay(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = paid + 1 WHERE id = '42'")
	return err
}

func nothing(context.Context) error { return nil }

// redsync-redislock.md: a lock outlives work of any length, and one with a Lease does not.
func TestALockIsRenewedUnlessItHasALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inMemory(t)
		must(t, Charge(t.Context(), f.Client, "42", func(ctx context.Context, _ *Lock) error {
			f.Advance(time.Hour)
			return ctx.Err()
		}))
		leased, err := f.Client.Lock(t.Context(), "invoice/42", dblock.Lease(8*time.Second))
		must(t, err)
		f.Advance(8 * time.Second)
		<-leased.Context().Done()
		assert.ErrorIs(t, context.Cause(leased.Context()), dblock.ErrLost)

		defer f.Hold(t, "invoice/43")()
		err = Charge(t.Context(), f.Client, "43", func(context.Context, *Lock) error {
			t.Error("charged twice at once")
			return nil
		})
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
	})
}

func TestALateSettlementIsRefused(t *testing.T) {
	d := onSQLite(t)
	must(t, Charge(t.Context(), d.Client, "42", func(ctx context.Context, lock *Lock) error {
		return Settle(ctx, d.Client, d.DB, lock, "42")
	}))
	assert.Equal(t, paid(t, d.DB), 1)
	err := Charge(t.Context(), d.Client, "42", func(_ context.Context, lock *Lock) error {
		_, err := d.Client.Break(t.Context(), lock.Name(), "a test")
		must(t, err)
		return Settle(t.Context(), d.Client, d.DB, lock, "42")
	})
	assert.ErrorIs(t, err, dblock.ErrLost)
}

// redisson.md: the owner is in the context, and not in the goroutine.
func TestALockIsEnteredAgainUnderItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inMemory(t)
		must(t, Restock(t.Context(), f.Client, "tea", nothing, nothing))
		outer := t.Context()
		err := f.Client.Do(outer, dblock.Name("stock", "tea"), func(context.Context, *Lock) error {
			within, cancel := context.WithTimeout(outer, time.Minute)
			defer cancel()
			return Count(within, f.Client, "tea", nothing) // waits for the lock of its own caller
		})
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
	})
}

// shedlock.md: a task that took no time is not run again at once by another process.
func TestATaskRunsOnceInAQuarter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inMemory(t)
		other := f.Another(t)
		runs := 0
		task := func(context.Context) error { runs++; return nil }
		must(t, CleanUp(t.Context(), f.Client, task))
		must(t, CleanUp(t.Context(), other.Client, task))
		assert.Equal(t, runs, 1)
		f.Advance(14 * time.Minute)
		must(t, CleanUp(t.Context(), other.Client, task))
		assert.Equal(t, runs, 2)

		ctx, stop := context.WithCancel(t.Context())
		quarters := make(chan time.Time, 10)
		ended := make(chan error, 2)
		for _, client := range []*Client{f.Client, other.Client} {
			go func() {
				ended <- Report(ctx, client, func(_ context.Context, _ *Lock, quarter time.Time) error {
					quarters <- quarter
					return nil
				})
			}()
		}
		first := <-quarters
		f.Advance(15 * time.Minute)
		assert.Equal(t, (<-quarters).Sub(first), 15*time.Minute)
		stop()
		must(t, errors.Join(<-ended, <-ended))
		assert.Equal(t, len(quarters), 0, "further runs")
	})
}

// pglock.md
func TestAnImportThatLostItsLockSavesNothing(t *testing.T) {
	d := onSQLite(t)
	position := func(context.Context) (int64, error) { return 7, nil }
	save := func(ctx context.Context, tx *sql.Tx, _ int64) error { return pay(ctx, tx) }
	must(t, Import(t.Context(), d.Client, d.DB, "rates", position, save))
	assert.Equal(t, paid(t, d.DB), 1)
	broken := func(ctx context.Context) (int64, error) {
		_, err := d.Client.Break(ctx, dblock.Name("import", "rates"), "a test")
		return 8, err
	}
	assert.ErrorIs(t, Import(t.Context(), d.Client, d.DB, "rates", broken, save), dblock.ErrLost)
	assert.Equal(t, paid(t, d.DB), 1)
}

// etcd.md: a client excludes itself, and a lower token is refused elsewhere.
func TestAnIndexIsPublishedByTheHolder(t *testing.T) {
	d := onSQLite(t)
	var tokens []int64
	for range 2 {
		must(t, Rebuild(t.Context(), d.Client, d.DB, func(ctx context.Context) error {
			_, err := d.Client.TryLock(t.Context(), "index")
			assert.ErrorIs(t, err, dblock.ErrNotAcquired, "another goroutine of the client")
			lock, err := d.Client.TryLock(ctx, "index")
			must(t, err)
			tokens = append(tokens, lock.Token())
			return lock.Unlock(ctx)
		}, pay))
	}
	assert.Equal(t, paid(t, d.DB), 2)
	must(t, PublishElsewhere(t.Context(), d.DB, tokens[1], pay))
	assert.ErrorIs(t, PublishElsewhere(t.Context(), d.DB, tokens[0], pay), fence.ErrStale)
	assert.Equal(t, paid(t, d.DB), 3)
}

// kubernetes.md: the next pod leads when the first one has returned.
func TestOnePodLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inMemory(t)
		watched, stopWatching := context.WithCancel(t.Context())
		leaders := make(chan string, 10)
		watching := make(chan error, 1)
		go func() { watching <- Leaders(watched, f.Client, func(pod string) { leaders <- pod }) }()
		assert.Equal(t, <-leaders, "", "before the election")

		one, stopOne := context.WithCancel(t.Context())
		two, stopTwo := context.WithCancel(t.Context())
		led := make(chan string)
		ended := make(chan error, 2)
		lead := func(ctx context.Context, client *Client, pod string) {
			ended <- Control(ctx, client, pod, func(ctx context.Context, _ int64) error {
				led <- pod
				<-ctx.Done()
				return nil
			})
		}
		go lead(one, f.Client, "pod-1")
		assert.Equal(t, <-led, "pod-1")
		assert.Equal(t, <-leaders, "pod-1")
		go lead(two, f.Another(t).Client, "pod-2")
		f.AwaitQueue(t, "controller", 1)
		stopOne()
		assert.Equal(t, <-led, "pod-2")
		assert.Equal(t, <-leaders, "pod-2")
		stopTwo()
		stopWatching()
		must(t, errors.Join(<-ended, <-ended))
		assert.ErrorIs(t, <-watching, context.Canceled)
	})
}

// zookeeper.md: a partition is handed over when another process asks for it.
func TestAPartitionIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inMemory(t)
		items, worked := make(chan string), make(chan string)
		ended := make(chan error, 1)
		go func() {
			ended <- Consume(t.Context(), f.Client, "7", items, func(_ context.Context, item string) error {
				worked <- item
				return nil
			})
		}()
		items <- "an item"
		assert.Equal(t, <-worked, "an item")
		must(t, f.Another(t).Client.Ask(t.Context(), dblock.Name("partition", "7"), "rebalance"))
		must(t, <-ended)
		go func() {
			ended <- Consume(t.Context(), f.Client, "7", items, func(context.Context, string) error { return nil })
		}()
		items <- "an item"
		f.LoseName(t, dblock.Name("partition", "7"))
		assert.ErrorIs(t, <-ended, dblock.ErrLost)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
