package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

const (
	goroutines = 64
	poolSize   = 16
	// each goroutine has its own names and its own rows: nobody waits for another but for the
	// database.
	namesEach = rows / goroutines
	turn      = 500 * time.Millisecond
)

// BenchmarkParallel is pairs per second of 64 goroutines on many names, against two commits of a
// single row by as many goroutines on the same pool, in turns of half a second.
func BenchmarkParallel(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		a := k.create(b).mustOpen(b, poolSize, nil)
		c := a.mustClient(b)
		subject := func(ctx context.Context, g, i int) error {
			return pair(ctx, c, fmt.Sprintf("name/%d/%d", g, i%namesEach))
		}
		reference := func(ctx context.Context, g, i int) error {
			id := g*namesEach + i%namesEach
			return errors.Join(a.commit(ctx, id), a.commit(ctx, id))
		}
		together(b, subject)
		together(b, reference)
		var ours, theirs float64
		n := 0
		for ; b.Loop(); n++ {
			theirs += together(b, reference)
			ours += together(b, subject)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(ours/theirs, "ratio")
		b.ReportMetric(ours/float64(n), "pairs/s")
		b.ReportMetric(theirs/float64(n), "reference/s")
	})
}

// together runs f in all goroutines for one turn, and returns how often it ran per second in all.
func together(b *testing.B, f func(ctx context.Context, g, i int) error) float64 {
	var wg sync.WaitGroup
	rates := make([]float64, goroutines)
	errs := make([]error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			rates[g], errs[g] = during(b.Context(), turn, func(i int) error { return f(b.Context(), g, i) })
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total
}
