package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	benchQueues = 1000 // names, each held and waited for by benchLine others
	benchLine   = 10
	benchRing   = 20 // holders who wait for each other in a circle
)

// BenchmarkDeadlock is the statement by which a waiter learns who waits for whom, among 10,000
// waiters in the queues of 1,000 names: one that waits for a ring of 20 names, whose holders stand
// in each other's queues.
func BenchmarkDeadlock(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		a := k.create(b).mustOpen(b, 2, nil)
		ctx := b.Context()
		engine := a.backend()
		require.NoError(b, engine.OpenSession(ctx, driver.Session{ID: "bench", Host: "h", TTL: time.Hour}))
		var locks, waiters []string
		for n := range benchQueues {
			locks = append(locks, fmt.Sprintf("('n%d', 'bench', 'h', 'holder %[1]d', 'h%[1]d', 1, 1, 1, 1, '', %d, %d)",
				n, benchLine, benchLine+1))
			for w := range benchLine {
				thread := fmt.Sprintf("waiter %d/%d", n, w)
				if w == 0 { // the holder of the name before it in its ring
					ring := n / benchRing * benchRing
					thread = fmt.Sprintf("holder %d", ring+(n+benchRing-1-ring)%benchRing)
				}
				waiters = append(waiters, fmt.Sprintf("('n%d', %d, 'bench', 'h', '%s', 'w%d.%d', 0, '', %d)", n, w+1,
					thread, n, w, n*benchLine+w))
			}
		}
		fill(b, a, "dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, "+
			"acquired_at, metadata, waiters, next_ticket)", locks)
		fill(b, a, "dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)",
			waiters)
		for _, table := range []string{"dblock_locks", "dblock_waiters"} {
			if analyze := map[string]string{"postgres": "ANALYZE ", "mysql": "ANALYZE TABLE ",
				"mariadb": "ANALYZE TABLE "}[k.name]; analyze != "" {
				require.NoError(b, a.exec(ctx, analyze+table))
			}
		}
		var times []time.Duration
		for i := 0; b.Loop(); i++ {
			times = append(times, timed(b, func(i int) error {
				n := i * 7 % benchQueues
				rows, err := engine.WaitGraph(context.WithoutCancel(ctx),
					[]driver.Waiting{{Name: fmt.Sprint("n", n), Attempt: fmt.Sprintf("w%d.%d", n, benchLine-1)}})
				if err == nil && len(rows) < 2*benchRing {
					err = fmt.Errorf("%d rows: want a ring of %d", len(rows), benchRing)
				}
				return err
			}, i))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(millis(quantile(times, 0.5)), "p50-ms")
		b.ReportMetric(millis(quantile(times, 0.99)), "p99-ms")
	})
}

func fill(b *testing.B, a *app, into string, rows []string) {
	for len(rows) > 0 {
		n := min(len(rows), 500)
		require.NoError(b, a.exec(b.Context(), "INSERT INTO "+into+" VALUES "+strings.Join(rows[:n], ", ")))
		rows = rows[n:]
	}
}
