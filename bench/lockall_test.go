package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkLockAll is LockAll of ten free names and its Unlock, against ten Locks and ten Unlocks,
// in turns.
func BenchmarkLockAll(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		c := k.create(b).mustOpen(b, 4, nil).mustClient(b)
		names := make([]string, 10)
		for i := range names {
			names[i] = fmt.Sprintf("name/%d", i)
		}
		subject := func(int) error {
			l, err := c.lockAll(b.Context(), names)
			if err != nil {
				return err
			}
			return l.Unlock(b.Context())
		}
		reference := func(int) error {
			locks := make([]held, len(names))
			for i, name := range names {
				var err error
				if locks[i], err = c.lock(b.Context(), name); err != nil {
					return err
				}
			}
			for _, l := range locks {
				if err := l.Unlock(b.Context()); err != nil {
					return err
				}
			}
			return nil
		}
		for i := range 10 {
			timed(b, subject, i)
			timed(b, reference, i)
		}
		var ours, theirs []time.Duration
		for i := 0; b.Loop(); i++ {
			ours = append(ours, timed(b, subject, i))
			theirs = append(theirs, timed(b, reference, i))
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(quantile(ours, 0.5))/float64(quantile(theirs, 0.5)), "p50-ratio")
		b.ReportMetric(micros(quantile(ours, 0.5)), "p50-µs")
		b.ReportMetric(micros(quantile(theirs, 0.5)), "p50-reference-µs")
	})
}
