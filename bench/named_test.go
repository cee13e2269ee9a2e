package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
)

// BenchmarkNamed is mysql.Named against GET_LOCK and RELEASE_LOCK on connections that are held for
// nothing else.
func BenchmarkNamed(b *testing.B) {
	for _, k := range kinds {
		if k.engine != migrate.MySQL || os.Getenv(k.env) == "" {
			continue
		}
		b.Run("pair/"+k.name, func(b *testing.B) { namedPair(b, k.create(b)) })
		b.Run("held/"+k.name, func(b *testing.B) { namedHeld(b, k.create(b)) })
		b.Run("handoff/"+k.name, func(b *testing.B) { namedHandoff(b, k.create(b)) })
	}
}

func (a *app) mustNamed(b testing.TB) locker {
	b.Helper()
	c, err := mysql.Named(a.db)
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

func (a *app) mustConn(b testing.TB) *sql.Conn {
	b.Helper()
	conn, err := a.db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// bareNamed calls one of the functions, whose answer must be 1.
func bareNamed(ctx context.Context, conn *sql.Conn, call string) error {
	var answer sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT "+call).Scan(&answer); err != nil {
		return err
	}
	if answer.Int64 != 1 {
		return fmt.Errorf("%s answered %v", call, answer)
	}
	return nil
}

// namedPair is Lock and Unlock of a free name by one goroutine, in turns with the bare functions.
func namedPair(b *testing.B, d database) {
	a, ctx := d.mustOpen(b, 4, nil), b.Context()
	c, conn := a.mustNamed(b), a.mustConn(b)
	subject := func(i int) error { return pair(ctx, c, fmt.Sprintf("name/%d", i%rows)) }
	reference := func(i int) error {
		if err := bareNamed(ctx, conn, fmt.Sprintf("GET_LOCK('bare/%d', 0)", i%rows)); err != nil {
			return err
		}
		return bareNamed(ctx, conn, fmt.Sprintf("RELEASE_LOCK('bare/%d')", i%rows))
	}
	for i := range 200 { // caches warm
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

// namedHeld is 1,000 locks taken by 64 goroutines and held at once: how fast, and on how many
// connections.
func namedHeld(b *testing.B, d database) {
	const names, hands = 1000, 64
	a := d.mustOpen(b, 3, nil)
	c := a.mustNamed(b)
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

// namedHandoff is 8 clients that want one name and lock again at once; then 8 connections that do
// the same with the bare functions.
func namedHandoff(b *testing.B, d database) {
	clients, conns := make([]locker, processes), make([]*sql.Conn, processes)
	for i := range clients {
		a := d.mustOpen(b, 4, nil)
		clients[i], conns[i] = a.mustNamed(b), a.mustConn(b)
	}
	var ours, theirs []time.Duration
	var seconds, total, squares float64
	counts := make([]int, processes)
	for b.Loop() {
		ours = append(ours, relay(b, counts, func(ctx context.Context, i int) (func() error, error) {
			l, err := clients[i].lock(ctx, "the one name")
			return func() error { return l.Unlock(ctx) }, err
		})...)
		theirs = append(theirs, relay(b, make([]int, processes), func(ctx context.Context, i int) (func() error, error) {
			err := bareNamed(ctx, conns[i], "GET_LOCK('bare', 60)")
			return func() error { return bareNamed(ctx, conns[i], "RELEASE_LOCK('bare')") }, err
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
