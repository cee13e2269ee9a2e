package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

const (
	bareLock   = "SELECT pg_advisory_lock($1)"
	bareUnlock = "SELECT pg_advisory_unlock($1)"
)

// BenchmarkAdvisory is postgres.Advisory against the same functions called on connections that are
// held for nothing else.
func BenchmarkAdvisory(b *testing.B) {
	for _, k := range kinds {
		if k.engine != migrate.Postgres || os.Getenv(k.env) == "" {
			continue
		}
		b.Run("pair", func(b *testing.B) { advisoryPair(b, k.create(b)) })
		b.Run("held", func(b *testing.B) { advisoryHeld(b, k.create(b)) })
		b.Run("handoff", func(b *testing.B) { advisoryHandoff(b, k.create(b)) })
	}
}

func (a *app) mustAdvisory(b testing.TB) locker {
	b.Helper()
	c, err := postgres.Advisory(a.pgx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return ownLocker{c}
}

func (d database) mustConnect(b testing.TB) *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), d.dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func barePair(ctx context.Context, conn *pgx.Conn, key int64) error {
	if _, err := conn.Exec(ctx, bareLock, key); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, bareUnlock, key)
	return err
}

// advisoryPair is Lock and Unlock of a free name by one goroutine, in turns with the bare
// functions.
func advisoryPair(b *testing.B, d database) {
	c, conn, ctx := d.mustOpen(b, 2, nil).mustAdvisory(b), d.mustConnect(b), b.Context()
	subject := func(i int) error { return pair(ctx, c, fmt.Sprintf("name/%d", i%rows)) }
	reference := func(i int) error { return barePair(ctx, conn, int64(i%rows)) }
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

// advisoryHeld is 1,000 locks taken by 64 goroutines and held at once: how fast, and on how many
// connections.
func advisoryHeld(b *testing.B, d database) {
	const names, hands = 1000, 64
	a := d.mustOpen(b, 2, nil)
	c := a.mustAdvisory(b)
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
			if err := l.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(connections), "connections")
	b.ReportMetric(float64(names*n)/took.Seconds(), "locks/s")
}

// advisoryHandoff is 8 clients that want one name and lock again at once; then 8 connections that
// do the same with the bare functions.
func advisoryHandoff(b *testing.B, d database) {
	clients, conns := make([]locker, processes), make([]*pgx.Conn, processes)
	for i := range clients {
		clients[i], conns[i] = d.mustOpen(b, 2, nil).mustAdvisory(b), d.mustConnect(b)
	}
	var ours, theirs []time.Duration
	var seconds, squares float64
	counts := make([]float64, processes)
	for b.Loop() {
		counted := make([]int, processes)
		ours = append(ours, relay(b, counted, func(ctx context.Context, i int) (func() error, error) {
			l, err := clients[i].lock(ctx, "the one name")
			return func() error { return l.Unlock(ctx) }, err
		})...)
		for i, n := range counted {
			counts[i] += float64(n)
		}
		theirs = append(theirs, relay(b, make([]int, processes), func(ctx context.Context, i int) (func() error, error) {
			_, err := conns[i].Exec(ctx, bareLock, 1)
			return func() error { _, err := conns[i].Exec(ctx, bareUnlock, 1); return err }, err
		})...)
		seconds += round.Seconds()
	}
	total := 0.0
	for _, n := range counts {
		total += n
		squares += n * n
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
func relay(b *testing.B, counts []int, lock func(ctx context.Context, hand int) (unlock func() error, err error)) (times []time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(round)
	last, unlocked := -1, time.Time{} // whoever has the lock may touch these, and times
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
