package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	poolSize = 16
	turn     = 500 * time.Millisecond
)

// BenchmarkParallel is pairs per second of up to 1,000 goroutines, against two commits of a single
// row by as many goroutines on the same pool, in turns of half a second. Each goroutine has its own
// names and its own rows: nobody waits for another but for the database.
func BenchmarkParallel(b *testing.B) {
	for _, goroutines := range []int{1, 4, 16, 64, 256, 1000} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			each(b, func(b *testing.B, k kind) { benchmarkParallel(b, k, goroutines) })
		})
	}
}

func benchmarkParallel(b *testing.B, k kind, goroutines int) {
	a := k.create(b).mustOpen(b, poolSize, nil)
	c := a.mustClient(b, dblock.WithTTL(time.Minute)) // a request that waits for longer than that fails
	names := min(15, rows/goroutines)                 // of each goroutine
	subject := func(ctx context.Context, g, i int) error { return pair(ctx, c, fmt.Sprintf("name/%d/%d", g, i%names)) }
	reference := func(ctx context.Context, g, i int) error {
		id := g*names + i%names
		return errors.Join(a.commit(ctx, id), a.commit(ctx, id))
	}
	together(b, goroutines, subject)
	together(b, goroutines, reference)
	var ours, theirs float64
	pooled, n := 0, 0
	for ; b.Loop(); n++ {
		theirs += together(b, goroutines, reference)
		stop := a.watch()
		ours += together(b, goroutines, subject)
		pooled = max(pooled, stop())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours/theirs, "ratio")
	b.ReportMetric(ours/float64(n), "pairs/s")
	b.ReportMetric(theirs/float64(n), "reference/s")
	b.ReportMetric(float64(pooled), "pool-conns")
	b.ReportMetric(float64(a.own(b)), "own-conns")
}

// together runs f in so many goroutines for one turn, and returns how often it ran per second in
// all.
func together(b *testing.B, goroutines int, f func(ctx context.Context, g, i int) error) float64 {
	var wg sync.WaitGroup
	rates := make([]float64, goroutines)
	errs := make([]error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			rates[g], errs[g] = during(b.Context(), turn, func(i int) error { return f(b.Context(), g, i) })
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total
}
