package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	sharers = 64                   // goroutines
	held2ms = 2 * time.Millisecond // what is done under a lock
)

// BenchmarkSharing is 64 goroutines of one client who want the same name, as readers or for one of
// 8 permits, and work for 2 ms under it, against the same with the name as a mutex, in turns of
// half a second.
func BenchmarkSharing(b *testing.B) {
	for name, option := range map[string]dblock.LockOption{"readers": dblock.Shared(), "permits": dblock.Permits(1,
		8)} {
		b.Run(name, func(b *testing.B) {
			each(b, func(b *testing.B, k kind) {
				c := k.create(b).mustOpen(b, poolSize, nil).mustClient(b)
				subject := func(ctx context.Context, _, _ int) error { return work2ms(ctx, c, "shared", option) }
				reference := func(ctx context.Context, _, _ int) error { return work2ms(ctx, c, "mutex") }
				together(b, sharers, subject)
				together(b, sharers, reference)
				var ours, theirs float64
				n := 0
				for ; b.Loop(); n++ {
					theirs += together(b, sharers, reference)
					ours += together(b, sharers, subject)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ours/theirs, "ratio")
				b.ReportMetric(ours/float64(n), "locks/s")
				b.ReportMetric(theirs/float64(n), "reference/s")
			})
		})
	}
}

func work2ms(ctx context.Context, c client, name string, options ...dblock.LockOption) error {
	l, err := c.lock(ctx, name, options...)
	if err != nil {
		return err
	}
	time.Sleep(held2ms)
	return l.Unlock(ctx)
}

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
