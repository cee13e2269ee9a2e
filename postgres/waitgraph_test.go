package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A ring of five in a crowd of 10,000 who wait: each behind one of a hundred names, or all behind
// one.
func BenchmarkWaitsOfARingAmong10000(b *testing.B) {
	for _, names := range []int{100, 1} {
		b.Run(fmt.Sprintf("%d names", names), func(b *testing.B) {
			config, err := pgxpool.ParseConfig(dbtest.Postgres(b).DSN)
			require.NoError(b, err)
			pool, err := pgxpool.NewWithConfig(b.Context(), config)
			require.NoError(b, err)
			b.Cleanup(pool.Close)
			if _, err := pool.Exec(b.Context(), fmt.Sprintf(`
				INSERT INTO dblock_sessions SELECT 's' || i, 'h', i, '', 0 FROM generate_series(0, 99) i;
				INSERT INTO dblock_heartbeats SELECT id, dblock_now() + 3600000000 FROM dblock_sessions;
				INSERT INTO dblock_locks (name, token, acquired_at, session_id, host, thread, attempt, waiters)
				SELECT 'n' || i, 1, 0, 's' || i %% 100, 'h', 'holder' || i, 'h' || i, 10000 / %[1]d FROM generate_series(0, %[1]d - 1) i;
				INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity)
				SELECT 'n' || i %% %[1]d, i, 's' || i %% 100, 'h', 't' || i, 'w' || i, 0, '', 0, 1 + i %% 3, 3 FROM generate_series(0, 9999) i;
				INSERT INTO dblock_locks (name, token, acquired_at, session_id, host, thread, attempt, waiters)
				SELECT 'r' || i, 1, 0, 's' || i, 'h', 'ring', 'has' || i, 1 FROM generate_series(0, 4) i;
				INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
				SELECT 'r' || (i + 1) %% 5, 1, 's' || i, 'h', 'ring', 'ring' || i, 0, '', 0 FROM generate_series(0, 4) i`, names)); err != nil {
				b.Fatal(err)
			}
			e := newEngine(pgxDB{pool})
			last := driver.Waiting{Name: fmt.Sprint("n", 9999%names), Attempt: "w9999"}
			from := []driver.Waiting{{Name: "r1", Attempt: "ring0"}, last}
			for b.Loop() {
				// The one at the end of a queue of units has to count all who are before it.
				waits, err := e.WaitGraph(b.Context(), from)
				if err != nil || len(waits) != 12 {
					b.Fatalf("%d rows, %v", len(waits), err)
				}
			}
		})
	}
}
