package bench

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// BenchmarkSnapshot loads one row while a transaction beside it keeps an old snapshot, as a backup
// does. Pairs of one client, bare commits, hand-offs of 8 greedy processes, and commits that insert
// a row, take turns of a second. Each of the first three has a row of its own. Their rates are
// those of ten turns without a snapshot (before), and of the first and the last ten under it. kept
// is last ÷ before. A snapshot does not slow inserts down: what they keep is due to other load on
// the machine. The load under the snapshot lasts 30 turns, or with DBLOCK_BENCH_SCALE=1 150 turns,
// which are ten minutes. On SQLite, log-kB is the growth of the log for each operation: beside a
// reader, no part of the log is reused.
func BenchmarkSnapshot(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		d := k.create(b)
		a := d.mustOpen(b, 4, nil)
		require.NoError(b, a.exec(b.Context(), "CREATE TABLE bench_log (n integer NOT NULL)"))
		loads := a.loads(b, d.contenders(b))
		const window = 10
		last := 30
		if os.Getenv("DBLOCK_BENCH_SCALE") != "" {
			last = 150
		}
		for b.Loop() {
			for _, l := range loads {
				l.perSecond(time.Second) // statements prepared
			}
			before := a.rates(b, loads, window)
			release := a.snapshot(b)
			first := a.rates(b, loads, window)
			a.rates(b, loads, last-2*window)
			after := a.rates(b, loads, window)
			release()
			for i, l := range loads {
				b.ReportMetric(before[i].rate, l.what+"/s-before")
				b.ReportMetric(first[i].rate, l.what+"/s-first")
				b.ReportMetric(after[i].rate, l.what+"/s-last")
				b.ReportMetric(after[i].rate/before[i].rate, l.what+"-kept")
				if k.engine == migrate.SQLite {
					b.ReportMetric(after[i].logged/1000, l.what+"-log-kB")
				}
			}
		}
		b.ReportMetric(0, "ns/op")
	})
}

// load is something that commits again and again.
type load struct {
	what      string
	perSecond func(d time.Duration) float64
}

func (a *app) loads(b *testing.B, children []*child) []load {
	c := a.mustClient(b)
	ctx := b.Context()
	again := func(f func(i int) error) func(d time.Duration) float64 {
		return func(d time.Duration) float64 {
			rate, err := during(ctx, d, f)
			require.NoError(b, err)
			return rate
		}
	}
	return []load{
		{"pairs", again(func(int) error { return pair(ctx, c, "a name of its own") })},
		{"commits", again(func(int) error { return a.commit(ctx, 1) })},
		{"handoffs", func(d time.Duration) float64 {
			var t tally
			t.add(b, children, "greedy", settle, d)
			return t.rate()
		}},
		{"inserts", again(func(int) error { return a.exec(ctx, "INSERT INTO bench_log (n) VALUES (1)") })},
	}
}

// measured is the rate of a load, and the bytes of SQLite's log for each of its operations.
type measured struct{ rate, logged float64 }

// rates has the loads take turns of a second each.
func (a *app) rates(b *testing.B, loads []load, turns int) []measured {
	sums := make([]measured, len(loads))
	for range turns {
		for i, l := range loads {
			size, began := a.log(b), time.Now()
			rate := l.perSecond(time.Second)
			operations := rate * time.Since(began).Seconds()
			sums[i].rate += rate / float64(turns)
			sums[i].logged += float64(a.log(b)-size) / operations / float64(turns)
		}
	}
	return sums
}

// snapshot begins a transaction that keeps its snapshot until release is called.
func (a *app) snapshot(b *testing.B) (release func()) {
	b.Helper()
	ctx := context.Background()
	const read = "SELECT COUNT(*) FROM dblock_locks"
	var n int
	if a.pgx != nil {
		tx, err := a.pgx.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(b, err)
		require.NoError(b, tx.QueryRow(ctx, read).Scan(&n))
		return func() { _ = tx.Rollback(ctx) }
	}
	conn, err := a.db.Conn(ctx)
	require.NoError(b, err)
	begin := "BEGIN"
	if a.engine == migrate.MySQL {
		begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
	}
	require.NoError(b, require.ErrOf(conn.ExecContext(ctx, begin)))
	require.NoError(b, conn.QueryRowContext(ctx, read).Scan(&n))
	return func() {
		assert.NoError(b, assert.ErrOf(conn.ExecContext(ctx, "ROLLBACK")))
		_ = conn.Close()
	}
}

// log returns the size of SQLite's log; elsewhere 0.
func (a *app) log(b *testing.B) int64 {
	b.Helper()
	if a.engine != migrate.SQLite {
		return 0
	}
	file, _, _ := strings.Cut(strings.TrimPrefix(a.dsn, "file:"), "?")
	info, err := os.Stat(file + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(b, err)
	return info.Size()
}
