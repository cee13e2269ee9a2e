package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// BenchmarkPair is Lock and Unlock of a free name by one goroutine, against two commits of a single
// row on the same pool, in turns.
func BenchmarkPair(b *testing.B) {
	for _, names := range []int{1, rows} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			each(b, func(b *testing.B, k kind) { benchmarkPair(b, k, names) })
		})
	}
}

func benchmarkPair(b *testing.B, k kind, names int) {
	a := k.create(b).mustOpen(b, 4, nil)
	c := a.mustClient(b)
	ctx := b.Context()
	subject := func(i int) error { return pair(ctx, c, fmt.Sprintf("name/%d", i%names)) }
	reference := func(i int) error {
		if err := a.commit(ctx, i%names); err != nil {
			return err
		}
		return a.commit(ctx, i%names)
	}
	for i := range names + 20 { // rows inserted, statements prepared
		require.NoError(b, subject(i))
	}
	for i := range 20 {
		require.NoError(b, reference(i))
	}
	var ours, theirs []time.Duration
	for i := 0; b.Loop(); i++ {
		ours = append(ours, timed(b, subject, i))
		theirs = append(theirs, timed(b, reference, i))
	}
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(float64(sum(ours))/float64(sum(theirs)), "ratio")
	b.ReportMetric(float64(quantile(ours, 0.5))/float64(quantile(theirs, 0.5)), "p50-ratio")
	b.ReportMetric(micros(quantile(ours, 0.5)), "p50-pair-µs")
	b.ReportMetric(micros(quantile(theirs, 0.5)), "p50-reference-µs")
}

func timed(b *testing.B, f func(i int) error, i int) time.Duration {
	start := time.Now()
	require.NoError(b, f(i))
	return time.Since(start)
}

func sum(d []time.Duration) (s time.Duration) {
	for _, x := range d {
		s += x
	}
	return s
}

// quantile sorts d. 0 where it is empty.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// during calls f again and again until the time is over, and returns how many times that was a
// second.
func during(ctx context.Context, d time.Duration, f func(i int) error) (float64, error) {
	start := time.Now()
	n := 0
	for ; time.Since(start) < d; n++ {
		if err := f(n); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
