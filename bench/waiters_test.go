package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// tryLocks is how many are measured of each name in a turn.
const tryLocks = 30

// BenchmarkWaiters is one client of which 10,000 goroutines wait for one name: the memory that each
// takes, what a TryLock of the same client takes there, in turns with one of a client of which a
// single goroutine waits, and how long it takes from the moment at which 9,000 of them give up to
// the moment at which all calls have returned and the 9,000 stand in the queue no more. With -short
// all numbers are a tenth.
func BenchmarkWaiters(b *testing.B) {
	each(b, benchmarkWaiters)
}

func benchmarkWaiters(b *testing.B, k kind) {
	leaving, staying := 9_000, 1_000
	if testing.Short() {
		leaving, staying = leaving/10, staying/10
	}
	d := k.create(b)
	ctx := b.Context()
	var count *counter
	if k.engine == migrate.Postgres {
		count = newCounter()
	}
	a, probe := d.mustOpen(b, poolSize, count), d.mustOpen(b, 1, nil)
	c, calm, holder := a.mustClient(b), d.mustOpen(b, poolSize, nil).mustClient(b), d.mustOpen(b, 4, nil).mustClient(b)
	for _, name := range []string{"crowded", "lonely"} {
		require.NoError(b, require.ErrOf(holder.lock(ctx, name)))
	}
	require.NoError(b, pair(ctx, c, "free"))
	lonely := enqueue(b, probe, calm, "lonely", 1)
	tryLock := func(c client, name string) func(int) error {
		return func(int) error {
			if _, err := c.tryLock(ctx, name); !errors.Is(err, dblock.ErrNotAcquired) {
				return fmt.Errorf("TryLock of %q, which is held: %w", name, err)
			}
			return nil
		}
	}
	var atCrowded, atLonely, cancelled []time.Duration
	var memory, timeouts, n float64
	for ; b.Loop(); n++ {
		before := memoryInUse()
		leave, stay := enqueue(b, probe, c, "crowded", leaving), enqueue(b, probe, c, "crowded", staying)
		memory += float64(memoryInUse()-before) / float64(leaving+staying)
		for i := range tryLocks {
			atCrowded = append(atCrowded, timed(b, tryLock(c, "crowded"), i))
			atLonely = append(atLonely, timed(b, tryLock(calm, "lonely"), i))
		}
		timeouts -= float64(lockTimeouts(b, probe, count))
		start := time.Now()
		leave()
		queued(b, probe, staying+1)
		cancelled = append(cancelled, time.Since(start))
		timeouts += float64(lockTimeouts(b, probe, count))
		stay()
		queued(b, probe, 1)
	}
	lonely()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(memory/n, "bytes/waiter")
	b.ReportMetric(float64(quantile(atCrowded, 0.5))/float64(quantile(atLonely, 0.5)), "trylock-p50-ratio")
	b.ReportMetric(micros(quantile(atCrowded, 0.5)), "trylock-crowded-p50-µs")
	b.ReportMetric(micros(quantile(atLonely, 0.5)), "trylock-lonely-p50-µs")
	b.ReportMetric(millis(quantile(cancelled, 0.5)), "cancel-p50-ms")
	if k.engine != migrate.SQLite {
		b.ReportMetric(timeouts/n, "lock-timeouts")
	}
}

// enqueue lets so many goroutines wait for a name that is held, until cancel is called, which
// returns when all calls have returned. They come in waves, since a request that is not in the
// queue within a TTL fails.
func enqueue(b *testing.B, probe *app, c client, name string, n int) (cancel func()) {
	b.Helper()
	const wave = 250
	ctx, stop := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	failed := make(chan error, n)
	cancel = func() {
		stop()
		waiting.Wait()
		select {
		case err := <-failed:
			b.Error(err)
		default:
		}
	}
	b.Cleanup(cancel)
	before := waitersOf(b, probe)
	for done := 0; done < n; {
		for range min(wave, n-done) {
			waiting.Go(func() {
				if _, err := c.lock(ctx, name); !errors.Is(err, context.Canceled) {
					failed <- fmt.Errorf("a waiter ended: %v", err)
				}
			})
			done++
		}
		for waitersOf(b, probe) < before+done {
			select {
			case err := <-failed:
				b.Fatal(err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return cancel
}

func waitersOf(b *testing.B, a *app) int {
	b.Helper()
	n, err := a.number(b.Context(), "SELECT count(*) FROM dblock_waiters")
	require.NoError(b, err)
	return n
}

// lockTimeouts counts the statements that gave up to wait for a row. PostgreSQL does not count them
// but logs each: there they are counted where they arrive, on the connections of one pool.
func lockTimeouts(b *testing.B, a *app, count *counter) int {
	b.Helper()
	switch a.engine {
	case migrate.SQLite:
		return 0
	case migrate.Postgres:
		return count.lockTimeouts()
	}
	n, err := a.number(b.Context(),
		"SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_timeouts'")
	require.NoError(b, err)
	return n
}
