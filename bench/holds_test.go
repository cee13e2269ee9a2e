package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// reaperBatch is a reaper's default (reaper.Batch).
const reaperBatch = 500

// BenchmarkHolds is one session that holds up to a million locks: the size of the tables, its
// heartbeat, the list of its locks that the client asks for once in a TTL, a sweep of a reaper, and
// a pair of another name by another client.
func BenchmarkHolds(b *testing.B) {
	eachSize(b, "locks", []int{1000, 10_000, 100_000}, []int{1_000_000}, benchmarkHolds)
}

func benchmarkHolds(b *testing.B, k kind, n int) {
	a := k.create(b).mustOpen(b, poolSize, nil)
	holdMany(b, a, n)
	report := b.ReportMetric
	report(a.tableBytes(b, "dblock_locks")/1e6, "table-MB")
	backend := a.backend()
	leave := backend.Attend("bench", time.Minute)
	defer leave()
	up, err := backend.Upkeep(b.Context(), "bench")
	require.NoError(b, err)
	defer up.Close()
	median := func(times int, f func(int) error) time.Duration {
		var took []time.Duration
		for i := range times + 1 {
			if d := timed(b, f, i); i > 0 { // the first prepares its statements
				took = append(took, d)
			}
		}
		return quantile(took, 0.5)
	}
	report(micros(median(100, func(int) error {
		return require.ErrOf(up.Heartbeat(b.Context(), "bench", time.Hour))
	})), "beat-µs")
	known := make([]driver.Claim, n)
	for i := range known {
		known[i] = driver.Claim{
			Session: "bench", Name: fmt.Sprintf("other/%d", i), Attempt: fmt.Sprintf("a%d", i), Token: 1,
		}
	}
	report(millis(median(3, func(int) error {
		claims, err := up.Claims(b.Context(), "bench", known)
		if err == nil && len(claims) != n {
			err = fmt.Errorf("%d locks are listed: want %d", len(claims), n)
		}
		return err
	})), "list-ms")
	report(millis(median(3, func(int) error {
		return errors.Join(require.ErrOf(backend.Expired(b.Context(), reaperBatch)),
			require.ErrOf(backend.Overdue(b.Context(), reaperBatch)))
	})), "sweep-ms")
	report(millis(median(3, func(int) error {
		_, next, err := backend.Purge(b.Context(), 24*time.Hour, "", reaperBatch)
		return errors.Join(err, require.ErrOf(backend.Miscounted(b.Context(), "", next, reaperBatch)))
	})), "purge-ms")
	report(millis(median(3, func(int) error {
		return errors.Join(require.ErrOf(backend.Forget(b.Context(), 24*time.Hour, reaperBatch)),
			require.ErrOf(backend.DropGuards(b.Context(), reaperBatch)),
			require.ErrOf(backend.PurgeRecords(b.Context(), 24*time.Hour, reaperBatch)))
	})), "forget-ms")
	c := a.mustClient(b)
	report(micros(median(300, func(i int) error { return pair(b.Context(), c, fmt.Sprintf("free/%d", i%100)) })),
		"pair-µs")
}
