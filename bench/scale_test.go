package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// scaleTurn is how long pairs are measured in each place, and then hand-offs.
const scaleTurn = 500 * time.Millisecond

// BenchmarkScale is a pair of a free name, and a hand-off between two clients, among 10², 10⁴ and
// 10⁶ locks that others hold, and beside 1, 10² and 10⁴ waiters of one name, in turns. The
// hand-offs are then among those waiters. With -short all numbers are a tenth.
func BenchmarkScale(b *testing.B) {
	if os.Getenv("DBLOCK_BENCH_SCALE") == "" {
		b.Skip("takes minutes: set DBLOCK_BENCH_SCALE=1")
	}
	rows := []size{{"1e2", 100, 1}, {"1e4", 10_000, 1}, {"1e6", 1_000_000, 1}}
	waiters := []size{{"1", 0, 1}, {"1e2", 0, 100}, {"1e4", 0, 10_000}}
	b.Run("rows", func(b *testing.B) { each(b, func(b *testing.B, k kind) { benchmarkScale(b, k, rows) }) })
	b.Run("waiters", func(b *testing.B) { each(b, func(b *testing.B, k kind) { benchmarkScale(b, k, waiters) }) })
}

// size is how many locks others hold, and how many wait for one name.
type size struct {
	name           string
	locks, waiters int
}

func benchmarkScale(b *testing.B, k kind, sizes []size) {
	if k.name != "postgres" && k.name != "mariadb" {
		b.Skip("not measured there")
	}
	places := make([]*place, len(sizes))
	for i, s := range sizes {
		if testing.Short() {
			s.locks, s.waiters = s.locks/10, max(s.waiters/10, 1)
		}
		places[i] = newPlace(b, k, s, nil)
	}
	for b.Loop() {
		for _, p := range places {
			p.pair(b, scaleTurn)
		}
		for _, p := range places {
			p.handOn(scaleTurn)
		}
	}
	b.ReportMetric(0, "ns/op")
	smallestPair, smallestHandoff := places[0].medians()
	for i, p := range places {
		pair, handoff := p.medians()
		b.ReportMetric(pair, sizes[i].name+":pair-p50-µs")
		b.ReportMetric(handoff, sizes[i].name+":handoff-p50-µs")
		if i > 0 {
			b.ReportMetric(pair/smallestPair, sizes[i].name+":pair-p50-ratio")
			b.ReportMetric(handoff/smallestHandoff, sizes[i].name+":handoff-p50-ratio")
		}
	}
}

// place is a database of one size, with a name that goroutines of two clients lock again and again:
// one holds it, and the others wait. While the gate is locked, the holder stays.
type place struct {
	*app
	clients         [2]client
	joining         time.Duration // of all waiters
	leave           func()        // ends the calls of all
	n               int           // pairs so far
	pairs, handoffs []time.Duration

	gate     sync.RWMutex
	mu       sync.Mutex // protects what follows, and handoffs
	unlocked time.Time
}

func newPlace(b *testing.B, k kind, s size, count *counter) *place {
	b.Helper()
	d := k.create(b)
	a := d.mustOpen(b, 4, count)
	p := &place{app: a}
	if s.locks > 0 {
		holdMany(b, a, s.locks)
	}
	p.clients = [2]client{a.mustClient(b), d.mustOpen(b, 4, count).mustClient(b)}
	p.pair(b, 100*time.Millisecond) // names inserted, statements prepared
	p.pairs = nil
	p.gate.Lock()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	p.leave = sync.OnceFunc(func() { cancel(); p.gate.Unlock(); all.Wait() })
	b.Cleanup(p.leave)
	start := time.Now()
	for i := range s.waiters + 1 {
		all.Go(func() { assert.NoError(b, p.contend(ctx, p.clients[i%2])) })
		if i%250 == 0 { // a request that is not in the queue within a TTL fails
			queued(b, a, i)
		}
	}
	queued(b, a, s.waiters)
	p.joining = time.Since(start)
	p.handOn(scaleTurn)
	p.mu.Lock()
	p.handoffs = nil
	p.mu.Unlock()
	return p
}

// holdMany makes locks that are held by a session which is alive.
func holdMany(b *testing.B, a *app, locks int) {
	b.Helper()
	require.NoError(b, a.backend().OpenSession(b.Context(), driver.Session{ID: "bench", Host: "h", TTL: time.Hour}))
	const digit = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION " +
		"ALL " +
		"SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	number, from := "0", []string{}
	for i, tens := 0, 1; tens < locks; i, tens = i+1, tens*10 {
		number += fmt.Sprintf(" + %d * d%d.d", tens, i)
		from = append(from, fmt.Sprintf("%s AS d%d", digit, i))
	}
	fill := "INSERT INTO dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, " +
		"acquired_at, metadata) " +
		"SELECT concat('other/', n), 'bench', 'h', 't', concat('a', n), 1, 1, 1, 1, '' FROM (SELECT " + number +
		" AS n FROM " + strings.Join(from, ", ") + ") AS numbers"
	analyze := map[migrate.Engine]string{migrate.Postgres: "VACUUM ANALYZE ", migrate.MySQL: "ANALYZE TABLE ",
		migrate.SQLite: "ANALYZE "}[a.engine] + "dblock_locks"
	statements := []string{fill, analyze}
	if a.engine == migrate.Postgres {
		statements = append(statements, "INSERT INTO dblock_names (name) SELECT name FROM dblock_locks",
			"VACUUM ANALYZE dblock_names")
	}
	for _, statement := range statements {
		require.NoError(b, a.exec(b.Context(), statement))
	}
}

// pair takes free names, and gives them back, for a time.
func (p *place) pair(b *testing.B, d time.Duration) {
	for start := time.Now(); time.Since(start) < d; p.n++ {
		p.pairs = append(p.pairs, timed(b, func(i int) error {
			return pair(b.Context(), p.clients[1], fmt.Sprintf("free/%d", i%100))
		}, p.n))
	}
}

// handOn lets the name go from one to the next for a time.
func (p *place) handOn(d time.Duration) {
	p.gate.Unlock()
	time.Sleep(d)
	p.gate.Lock()
}

// contend locks and unlocks until ctx ends. The locks have metadata, so that each hand-off is
// one of the database, also from one goroutine to the next of the same client.
func (p *place) contend(ctx context.Context, c client) error {
	metadata := dblock.Metadata(map[string]string{"place": "scale"})
	for {
		l, err := c.lock(ctx, "crowded", metadata)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		p.granted(time.Now())
		p.pass()
		if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// pass returns when the gate is open.
func (p *place) pass() {
	p.gate.RLock()
	defer p.gate.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlocked = time.Now()
}

func (p *place) granted(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unlocked.IsZero() {
		p.handoffs = append(p.handoffs, now.Sub(p.unlocked))
	}
}

// medians are those of the pairs and of the hand-offs, in microseconds.
func (p *place) medians() (pair, handoff float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return micros(quantile(p.pairs, 0.5)), micros(quantile(p.handoffs, 0.5))
}
