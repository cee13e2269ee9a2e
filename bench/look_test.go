package bench

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

const (
	fewLocks, manyLocks       = 100, 100_000
	fewSessions, manySessions = 10, 1000
	shown                     = 50 // rows of a page
	queuesThere               = 20 // names with a waiter
)

// BenchmarkLook is what dblock ls and the page read at a time: the first names, the first names
// with waiters and the first sessions, among 100,000 locks of 1,000 sessions and among 100 locks of
// 10, in turns. With -short the many are a tenth.
func BenchmarkLook(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		locks, sessions := manyLocks, manySessions
		if testing.Short() {
			locks, sessions = locks/10, sessions/10
		}
		few, many := newView(b, k, fewLocks, fewSessions), newView(b, k, locks, sessions)
		var fewTimes, manyTimes []time.Duration
		for b.Loop() {
			fewTimes, manyTimes = append(fewTimes, timed(b, few.look, 0)), append(manyTimes, timed(b, many.look, 0))
		}
		b.ReportMetric(0, "ns/op")
		fewP50, manyP50 := micros(quantile(fewTimes, 0.5)), micros(quantile(manyTimes, 0.5))
		b.ReportMetric(manyP50/fewP50, "p50-ratio")
		b.ReportMetric(manyP50, "many-p50-µs")
		b.ReportMetric(fewP50, "few-p50-µs")
		if k.engine != migrate.SQLite { // which does not count
			b.ReportMetric(float64(many.rowsRead(b))/float64(few.rowsRead(b)), "rows-ratio")
		}
	})
}

// view is a database with locks, and a client that reads them.
type view struct {
	*app
	*inspect.Inspector
}

func newView(b *testing.B, k kind, locks, sessions int) view {
	b.Helper()
	a := k.create(b).mustOpen(b, 4, nil)
	var sessionRows, beats, lockRows, waiters []string
	for i := range sessions {
		sessionRows = append(sessionRows, fmt.Sprintf("('s%04d', 'h', 1, 'bench', 1)", i))
		beats = append(beats, fmt.Sprintf("('s%04d', %d)", i, time.Now().Add(time.Hour).UnixMicro()))
	}
	for i := range locks {
		queued := 0
		if i%(locks/queuesThere) == 0 {
			queued = 1
			waiters = append(waiters, fmt.Sprintf("('n%06d', 1, 's0000', 'h', 'w%[1]d', 'w%[1]d', 0, '', 1)", i))
		}
		lockRows = append(lockRows, fmt.Sprintf("('n%06d', 's%04d', 'h', 't', 'a%[1]d', 1, 1, 1, 1, '', %[3]d)", i,
			i%sessions, queued))
	}
	fill(b, a, "dblock_sessions (id, host, pid, app, started_at)", sessionRows)
	fill(b, a, "dblock_heartbeats (session_id, expires_at)", beats)
	fill(b, a, "dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, acquired_at, "+
		"metadata, waiters)", lockRows)
	fill(b, a, "dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)",
		waiters)
	analyze := map[migrate.Engine]string{migrate.Postgres: "VACUUM ANALYZE ", migrate.MySQL: "ANALYZE TABLE "}[k.engine]
	for _, table := range []string{"dblock_locks", "dblock_waiters", "dblock_sessions", "dblock_heartbeats"} {
		if analyze != "" {
			require.NoError(b, a.exec(b.Context(), analyze+table))
		}
	}
	v := view{a, a.mustClient(b).inspector()}
	for range 10 { // statements prepared, and planned for good
		require.NoError(b, v.look(0))
	}
	return v
}

// look reads what a page shows.
func (v view) look(int) error {
	ctx := context.Background()
	for what, n := range map[string]func() (int, error){
		"names": func() (int, error) { return count(v.List(ctx, inspect.Filter{Limit: shown})) },
		"names with waiters": func() (int, error) {
			return count(v.List(ctx, inspect.Filter{Contended: true, Limit: queuesThere}))
		},
		"sessions": func() (int, error) { return count(v.Sessions(ctx, inspect.SessionFilter{Limit: fewSessions})) },
	} {
		want := map[string]int{"names": shown, "names with waiters": queuesThere, "sessions": fewSessions}[what]
		if got, err := n(); err != nil || got != want {
			return fmt.Errorf("%d %s, %v: want %d", got, what, err, want)
		}
	}
	return nil
}

func count[T any](rows iter.Seq2[T, error]) (n int, err error) {
	for _, err := range rows {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// rowsRead is how many rows the server reads for a look.
func (v view) rowsRead(b *testing.B) int {
	b.Helper()
	before := v.counted(b)
	require.NoError(b, v.look(0))
	return v.counted(b) - before
}

// counted is how many rows of tables the server says that it has read so far.
func (v view) counted(b *testing.B) int {
	b.Helper()
	query := "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Innodb_rows_read'"
	switch v.kind.name {
	case "mariadb":
		query = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rows_read'"
	case "postgres":
		for _, c := range v.pgx.AcquireAllIdle(b.Context()) {
			require.NoError(b, require.ErrOf(c.Exec(b.Context(), "SELECT pg_stat_force_next_flush()")))
			c.Release()
		}
		query = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables"
	}
	n, err := v.number(b.Context(), query)
	require.NoError(b, err)
	return n
}
