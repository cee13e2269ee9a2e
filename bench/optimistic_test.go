package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/optimistic"
)

// contention is how many goroutines want the one name.
var contention = []int{1, 2, 4, 8, 16, 32, 64}

// thoughts are how long each works between reading and writing.
var thoughts = []time.Duration{0, 5 * time.Millisecond}

// BenchmarkOptimistic is one row that n goroutines read, work on, and write back, each in one
// transaction: by version, with Retry, against the same under a lock, in turns of half a second.
// Afterwards it prints the table of package optimistic's comment: the ratio of the rates, and how
// often each transaction was tried.
func BenchmarkOptimistic(b *testing.B) {
	table := make(map[string]string)
	var columns []string
	for _, think := range thoughts {
		b.Run(fmt.Sprintf("work=%v", think), func(b *testing.B) {
			each(b, func(b *testing.B, k kind) {
				columns = append(columns, k.name)
				a := k.create(b).mustOpen(b, contention[len(contention)-1]+8, nil)
				require.NoError(b, a.migrateVersions(b.Context()))
				for _, n := range contention {
					b.Run(fmt.Sprint(n), func(b *testing.B) {
						table[fmt.Sprint(think, k.name, n)] = benchmarkOptimistic(b, a, n, think)
					})
				}
			})
		})
	}
	if columns = columns[:len(columns)/len(thoughts)]; len(table) < len(columns)*len(thoughts)*len(contention) {
		return // only some of it was asked for
	}
	for _, think := range thoughts {
		fmt.Printf("| %v of work |", think)
		for _, column := range columns {
			fmt.Printf(" %s |", column)
		}
		fmt.Println()
		for _, n := range contention {
			fmt.Printf("| %d |", n)
			for _, column := range columns {
				fmt.Printf(" %s |", table[fmt.Sprint(think, column, n)])
			}
			fmt.Println()
		}
	}
}

func benchmarkOptimistic(b *testing.B, a *app, n int, think time.Duration) string {
	c := a.mustClient(b)
	var done, tries atomic.Int64
	increment := func(ctx context.Context, tx statements, beforeWriting func() error) error {
		count, err := tx.number(ctx, "SELECT n FROM bench_rows WHERE id = 1")
		if err != nil {
			return err
		}
		if think > 0 {
			time.Sleep(think)
		}
		if err := beforeWriting(); err != nil {
			return err
		}
		return tx.exec(ctx, fmt.Sprintf("UPDATE bench_rows SET n = %d WHERE id = 1", count+1))
	}
	byLock := func(ctx context.Context) error {
		l, err := c.lock(ctx, "the row")
		if err != nil {
			return err
		}
		// SQLite has one writer, and dblock's clients write too
		err = optimistic.Retry(ctx, func(ctx context.Context) error {
			return a.inTx(ctx, func(ctx context.Context, tx statements) error {
				return increment(ctx, tx, func() error { return nil })
			})
		}, optimistic.Attempts(1_000_000))
		return errors.Join(err, l.Unlock(ctx))
	}
	byVersion := func(ctx context.Context) error {
		return optimistic.Retry(ctx, func(ctx context.Context) error {
			tries.Add(1)
			return a.inTx(ctx, func(ctx context.Context, tx statements) error {
				version, err := optimistic.Read(ctx, tx.tx, "the row")
				if err != nil {
					return err
				}
				return increment(ctx, tx, func() error { return optimistic.Bump(ctx, tx.tx, "the row", version) })
			})
		}, optimistic.Attempts(1_000_000))
	}
	rate := func(do func(context.Context) error) float64 {
		before, start := done.Load(), time.Now()
		var all sync.WaitGroup
		errs := make([]error, n)
		for g := range n {
			all.Go(func() {
				for time.Since(start) < turn && errs[g] == nil {
					if errs[g] = do(b.Context()); errs[g] == nil {
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.NoError(b, errors.Join(errs...))
		return float64(done.Load()-before) / time.Since(start).Seconds()
	}
	first, err := a.number(b.Context(), "SELECT n FROM bench_rows WHERE id = 1")
	require.NoError(b, err)
	rate(byLock)
	var versions, locks float64
	var bumped int64
	turns := 0
	for b.Loop() {
		locks += rate(byLock)
		before := done.Load()
		versions += rate(byVersion)
		bumped += done.Load() - before
		turns++
	}
	last, err := a.number(b.Context(), "SELECT n FROM bench_rows WHERE id = 1")
	if err != nil || int64(last-first) != done.Load() {
		b.Fatalf("%d transactions became %d: %v", done.Load(), last-first, err)
	}
	each := float64(tries.Load()) / float64(bumped)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(versions/locks, "ratio")
	b.ReportMetric(versions/float64(turns), "versions/s")
	b.ReportMetric(locks/float64(turns), "locks/s")
	b.ReportMetric(each, "tries")
	return fmt.Sprintf("%.2f (%.1f)", versions/locks, each)
}

// statements is a transaction of either library.
type statements struct {
	tx     any
	number func(ctx context.Context, query string) (int, error)
	exec   func(ctx context.Context, statement string) error
}

// inTx runs do in a transaction at the server's default level, and commits it.
func (a *app) inTx(ctx context.Context, do func(ctx context.Context, tx statements) error) error {
	if a.pgx != nil {
		tx, err := a.pgx.Begin(ctx)
		if err != nil {
			return err
		}
		s := statements{tx: tx}
		s.number = func(ctx context.Context, query string) (n int, err error) {
			err = tx.QueryRow(ctx, query).Scan(&n)
			return n, err
		}
		s.exec = func(ctx context.Context, statement string) error { _, err := tx.Exec(ctx, statement); return err }
		if err := do(ctx, s); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	s := statements{tx: tx}
	s.number = func(ctx context.Context, query string) (n int, err error) {
		err = tx.QueryRowContext(ctx, query).Scan(&n)
		return n, err
	}
	s.exec = func(ctx context.Context, statement string) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
	if err := do(ctx, s); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (a *app) migrateVersions(ctx context.Context) error {
	db, err := sql.Open(a.driver, a.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return migrate.Up(ctx, db, a.engine, migrate.Versions)
}
