package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// own is a server's own locks: through the library, and by the same functions called on connections
// that are held for nothing else.
type own struct {
	pool, held int // connections of a pool, and of that of the benchmark's "held"
	locker     func(b testing.TB, a *app) locker
	bare       func(b testing.TB, d database, a *app) bare
}

// bare calls the functions of one connection.
type bare struct {
	lock, unlock func(ctx context.Context, key int) error
}

// BenchmarkAdvisory is postgres.Advisory against pg_advisory_lock and pg_advisory_unlock.
func BenchmarkAdvisory(b *testing.B) {
	benchmarkOwn(b, migrate.Postgres, own{2, 2, advisory, bareAdvisory})
}

// BenchmarkNamed is mysql.Named against GET_LOCK and RELEASE_LOCK.
func BenchmarkNamed(b *testing.B) { benchmarkOwn(b, migrate.MySQL, own{4, 3, named, bareNamed}) }

func benchmarkOwn(b *testing.B, engine migrate.Engine, o own) {
	for _, k := range kinds {
		if k.engine != engine || os.Getenv(k.env) == "" {
			continue
		}
		suffix := ""
		if engine == migrate.MySQL {
			suffix = "/" + k.name
		}
		b.Run("pair"+suffix, func(b *testing.B) { o.pair(b, k.create(b)) })
		b.Run("held"+suffix, func(b *testing.B) { o.many(b, k.create(b)) })
		b.Run("handoff"+suffix, func(b *testing.B) { o.handoff(b, k.create(b)) })
	}
}

// closer is a client of a server's own locks.
type closer interface {
	dblock.Locker
	Close(ctx context.Context) error
}

// closed is a locker that the end of the benchmark closes.
func closed(b testing.TB, c closer, err error) locker {
	b.Helper()
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, c.Close(context.Background())) })
	return ownLocker{c}
}

func advisory(b testing.TB, a *app) locker {
	b.Helper()
	c, err := postgres.Advisory(a.pgx)
	return closed(b, c, err)
}

func named(b testing.TB, a *app) locker {
	b.Helper()
	c, err := mysql.Named(a.db)
	return closed(b, c, err)
}

func bareAdvisory(b testing.TB, d database, _ *app) bare {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), d.dsn)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	call := func(statement string) func(ctx context.Context, key int) error {
		return func(ctx context.Context, key int) error {
			_, err := conn.Exec(ctx, statement, int64(key))
			return err
		}
	}
	return bare{call("SELECT pg_advisory_lock($1)"), call("SELECT pg_advisory_unlock($1)")}
}

func bareNamed(b testing.TB, _ database, a *app) bare {
	b.Helper()
	conn, err := a.db.Conn(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	call := func(format string) func(ctx context.Context, key int) error {
		return func(ctx context.Context, key int) error {
			var answer sql.NullInt64
			text := fmt.Sprintf(format, key)
			err := conn.QueryRowContext(ctx, text).Scan(&answer)
			if err == nil && answer.Int64 != 1 {
				err = fmt.Errorf("%s answered %v", text, answer)
			}
			return err
		}
	}
	return bare{call("SELECT GET_LOCK('bare/%d', 60)"), call("SELECT RELEASE_LOCK('bare/%d')")}
}

// pair is Lock and Unlock of a free name by one goroutine, in turns with the bare
// functions.
func (o own) pair(b *testing.B, d database) {
	a, ctx := d.mustOpen(b, o.pool, nil), b.Context()
	c, bare := o.locker(b, a), o.bare(b, d, a)
	subject := func(i int) error { return pair(ctx, c, fmt.Sprintf("name/%d", i%rows)) }
	reference := func(i int) error {
		if err := bare.lock(ctx, i%rows); err != nil {
			return err
		}
		return bare.unlock(ctx, i%rows)
	}
	for i := range 200 { // statements prepared, caches warm
		timed(b, subject, i)
		timed(b, reference, i)
	}
	var ours, theirs []time.Duration
	for i := 0; b.Loop(); i++ {
		ours = append(ours, timed(b, subject, i))
		theirs = append(theirs, timed(b, reference, i))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sum(ours))/float64(sum(theirs)), "ratio")
	b.ReportMetric(float64(quantile(ours, 0.5))/float64(quantile(theirs, 0.5)), "p50-ratio")
	b.ReportMetric(micros(quantile(ours, 0.5)), "p50-pair-µs")
	b.ReportMetric(micros(quantile(theirs, 0.5)), "p50-reference-µs")
}

// many is 1,000 locks taken by 64 goroutines and held at once: how fast, and on how many
// connections.
func (o own) many(b *testing.B, d database) {
	const names, hands = 1000, 64
	a := d.mustOpen(b, o.held, nil)
	c := o.locker(b, a)
	var took time.Duration
	connections, n := 0, 0
	for b.Loop() {
		locks := make([]held, names)
		var all sync.WaitGroup
		start := time.Now()
		for hand := range hands {
			all.Go(func() {
				for i := hand; i < names; i += hands {
					l, err := c.lock(b.Context(), fmt.Sprintf("name/%d", i))
					if err != nil {
						b.Error(err)
						return
					}
					locks[i] = l
				}
			})
		}
		all.Wait()
		took += time.Since(start)
		if b.Failed() {
			return
		}
		n++
		a.rest()
		connections = max(connections, d.connections(b, a))
		for _, l := range locks {
			require.NoError(b, l.Unlock(b.Context()))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(connections), "connections")
	b.ReportMetric(float64(names*n)/took.Seconds(), "locks/s")
}

// handoff is 8 clients that want one name and lock again at once; then 8 connections that do
// the same with the bare functions.
func (o own) handoff(b *testing.B, d database) {
	clients, conns := make([]locker, processes), make([]bare, processes)
	for i := range clients {
		a := d.mustOpen(b, o.pool, nil)
		clients[i], conns[i] = o.locker(b, a), o.bare(b, d, a)
	}
	var ours, theirs []time.Duration
	var seconds, total, squares float64
	counts := make([]int, processes)
	for b.Loop() {
		ours = append(ours, relay(b, counts, func(ctx context.Context, i int) (func() error, error) {
			l, err := clients[i].lock(ctx, "the one name")
			return func() error { return l.Unlock(ctx) }, err
		})...)
		counted := make([]int, processes)
		theirs = append(theirs, relay(b, counted, func(ctx context.Context, i int) (func() error, error) {
			return func() error { return conns[i].unlock(ctx, 1) }, conns[i].lock(ctx, 1)
		})...)
		seconds += round.Seconds()
	}
	for _, n := range counts {
		total += float64(n)
		squares += float64(n) * float64(n)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(ours))/seconds, "handoffs/s")
	b.ReportMetric(float64(len(theirs))/seconds, "reference/s")
	b.ReportMetric(micros(quantile(ours, 0.5)), "p50-µs")
	b.ReportMetric(micros(quantile(ours, 0.99)), "p99-µs")
	b.ReportMetric(micros(quantile(theirs, 0.5)), "p50-reference-µs")
	b.ReportMetric(total*total/(processes*squares), "jain")
}

// relay has 8 hands take the same lock in turn, and returns how long each hand-off took from one to
// another: from the call of unlock to the return of lock.
func relay(
	b *testing.B, counts []int, lock func(ctx context.Context, hand int) (unlock func() error, err error),
) (times []time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(round)
	last, unlocked := -1, time.Time{} // the holder of the lock may touch these, and times
	inside := make(chan struct{}, 1)
	for hand := range processes {
		all.Go(func() {
			for time.Now().Before(end) {
				unlock, err := lock(b.Context(), hand)
				if err != nil {
					b.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					b.Error("two holders")
				}
				now := time.Now()
				counts[hand]++
				if last >= 0 && last != hand {
					times = append(times, now.Sub(unlocked))
				}
				last, unlocked = hand, time.Now()
				<-inside
				if err := unlock(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return times
}
