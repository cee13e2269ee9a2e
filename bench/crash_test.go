package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	crashes  = 10
	crashTTL = 2 * time.Second
)

// BenchmarkCrash is the time from the SIGKILL of a holder, a process of its own, to the grant of a
// waiter in another process: 10 holders with a TTL of 2 s, killed one after the other at different
// moments between two heartbeats.
func BenchmarkCrash(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		d := k.create(b)
		a := d.mustOpen(b, 8, nil)
		c := a.mustClient(b, dblock.WithTTL(crashTTL))
		var times []time.Duration
		for b.Loop() {
			times = append(times, crash(b, d, a, c)...)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(millis(quantile(times, 0)), "min-ms")
		b.ReportMetric(millis(quantile(times, 0.5)), "median-ms")
		b.ReportMetric(millis(quantile(times, 1)), "max-ms")
		b.ReportMetric(millis(crashTTL), "ttl-ms")
	})
}

func crash(b *testing.B, d database, a *app, c client) []time.Duration {
	holders := make([]*child, crashes)
	granted := make([]time.Duration, crashes)
	errs := make([]error, crashes)
	var waiting sync.WaitGroup
	for i := range holders {
		name := fmt.Sprintf("name/%d", i)
		holders[i] = d.start(b, "hold", name)
		waiting.Go(func() {
			l, err := c.lock(b.Context(), name)
			granted[i] = session.Boottime()
			if err == nil {
				err = l.Unlock(b.Context())
			}
			errs[i] = err
		})
	}
	queued(b, a, crashes)
	times := make([]time.Duration, crashes)
	for i, h := range holders {
		times[i] = session.Boottime()
		require.NoError(b, h.cmd.Process.Kill())
		time.Sleep(crashTTL / 5 / crashes)
	}
	waiting.Wait()
	for i := range times {
		require.NoError(b, errs[i])
		times[i] = granted[i] - times[i]
	}
	return times
}

// holdChild holds the name until it is killed.
func holdChild(ctx context.Context, d database) error {
	a, err := d.open(ctx, 8, nil)
	if err != nil {
		return err
	}
	defer a.close()
	c, err := a.client(dblock.WithTTL(crashTTL))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if _, err := c.lock(ctx, os.Getenv("DBLOCK_BENCH_CHILD_NAME")); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
