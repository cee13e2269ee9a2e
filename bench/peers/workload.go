package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// subject is a peer with the address of its server.
type subject struct {
	peer
	at string
}

// workload is a measurement of a peer with one or several figures.
type workload struct {
	heads []string // a column each; the first one is compared
	time  bool     // the first figure is a time: less is better
	locks bool     // the reference, which is no lock, has no figure
	run   func(ctx context.Context, s subject, d time.Duration) ([]float64, error)
}

var workloads = []workload{
	{heads: []string{"pair, 1 goroutine: p50, µs", "p99, µs"}, time: true, run: onePair},
	{heads: []string{"32 goroutines, own names: pairs/s"}, run: ownNames(32)},
	{heads: []string{"256 goroutines, own names: pairs/s"}, run: ownNames(256)},
	{heads: []string{"8 processes, one name: hand-offs/s", "p50, ms", "p99, ms", "fairness (Jain)"}, locks: true,
		run: byProcesses},
	{heads: []string{"32 goroutines, one name: hand-offs/s", "p50, ms"}, locks: true, run: byGoroutines},
}

// warmUp is the part of a measurement's time that passes before it.
const warmUp = 4

// onePair locks and unlocks one free name again and again.
func onePair(ctx context.Context, s subject, d time.Duration) ([]float64, error) {
	l, err := s.start(ctx, s.at)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var times []time.Duration
	for begin := time.Now(); time.Since(begin) < d+d/warmUp; {
		start := time.Now()
		if err := pair(ctx, l, "pair"); err != nil {
			return nil, err
		}
		if start.Sub(begin) > d/warmUp {
			times = append(times, time.Since(start))
		}
	}
	return []float64{micros(quantile(times, 0.5)), micros(quantile(times, 0.99))}, nil
}

// ownNames has goroutines of one client lock and unlock a name of their own each.
func ownNames(goroutines int) func(context.Context, subject, time.Duration) ([]float64, error) {
	return func(ctx context.Context, s subject, d time.Duration) ([]float64, error) {
		l, err := s.start(ctx, s.at)
		if err != nil {
			return nil, err
		}
		defer l.close()
		name := func(g int) string { return fmt.Sprintf("own/%d", g) }
		// The first pairs connect, insert rows, and make sessions.
		err = each(ctx, goroutines, func(ctx context.Context, g int) error { return pair(ctx, l, name(g)) })
		if err != nil {
			return nil, err
		}
		var pairs atomic.Int64
		begin := time.Now()
		err = each(ctx, goroutines, func(ctx context.Context, g int) error {
			for time.Since(begin) < d+d/warmUp {
				if err := pair(ctx, l, name(g)); err != nil {
					return err
				}
				if passed := time.Since(begin); passed > d/warmUp && passed < d+d/warmUp {
					pairs.Add(1)
				}
			}
			return nil
		})
		return []float64{float64(pairs.Load()) / d.Seconds()}, err
	}
}

func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	work, ctx := errgroup.WithContext(ctx)
	for i := range n {
		work.Go(func() error { return f(ctx, i) })
	}
	return work.Wait()
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
