package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	crashes  = 10
	crashTTL = 2 * time.Second // of a holder on another host
)

// elsewhere are the options of clients that learn nothing of each other's processes, as on two
// hosts.
var elsewhere = []dblock.Option{dblock.WithTTL(crashTTL), dblock.WithoutCrashDetection()}

// BenchmarkCrash is the time from the SIGKILL of a holder, a process of its own, to the grant of a
// waiter in another process: 10 holders, killed one after the other at different moments between
// two heartbeats, and between two looks of the waiter for dead processes. The TTL is the default on
// the same host, and 2 s where the lease alone decides.
func BenchmarkCrash(b *testing.B) {
	for _, c := range []struct {
		name    string // of the benchmark, and of the child
		ttl     time.Duration
		options []dblock.Option
	}{{"same-host", 15 * time.Second, nil}, {"another-host", crashTTL, elsewhere}} {
		b.Run(c.name, func(b *testing.B) {
			each(b, func(b *testing.B, k kind) {
				d := k.create(b)
				a := d.mustOpen(b, 8, nil)
				waiter := a.mustClient(b, c.options...)
				var times []time.Duration
				for b.Loop() {
					times = append(times, crash(b, a, waiter, c.name, c.ttl)...)
				}
				reportSpread(b, times)
			})
		})
	}
}

func reportSpread(b *testing.B, times []time.Duration) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(times, 0)), "min-ms")
	b.ReportMetric(millis(quantile(times, 0.5)), "median-ms")
	b.ReportMetric(millis(quantile(times, 1)), "max-ms")
}

func crash(b *testing.B, a *app, c client, where string, ttl time.Duration) []time.Duration {
	holders := make([]*child, crashes)
	granted := make([]time.Duration, crashes)
	errs := make([]error, crashes)
	var waiting sync.WaitGroup
	for i := range holders {
		name := fmt.Sprintf("name/%d", i)
		holders[i] = a.start(b, where, name)
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
		time.Sleep(ttl / 5 / (crashes + 1)) // no multiple of a pause between two looks
	}
	waiting.Wait()
	for i := range times {
		require.NoError(b, errs[i])
		times[i] = granted[i] - times[i]
	}
	return times
}

// BenchmarkRestart is the time of the first Lock of a process, from its call to its grant, whose
// predecessor on the same host was killed while it held the name. The reference is the first Lock
// of a free name by such a process, in turns.
func BenchmarkRestart(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		d := k.create(b)
		var times, reference []time.Duration
		for b.Loop() {
			for range crashes {
				name := fmt.Sprintf("name/%d", len(times))
				holder := d.start(b, "same-host", name)
				require.NoError(b, holder.cmd.Process.Kill())
				_ = holder.cmd.Wait() // the error is the signal
				times = append(times, d.firstLock(b, name))
				reference = append(reference, d.firstLock(b, "free/"+name))
			}
		}
		reportSpread(b, times)
		b.ReportMetric(millis(quantile(reference, 0.5)), "reference-median-ms")
		b.ReportMetric(float64(quantile(times, 0.5))/float64(quantile(reference, 0.5)), "p50-ratio")
	})
}

// firstLock starts a process and returns the time of its first Lock.
func (d database) firstLock(b *testing.B, name string) time.Duration {
	b.Helper()
	c := d.start(b, "first", name)
	defer func() { _ = c.cmd.Wait() }()
	_, err := fmt.Fprintln(c.in)
	require.NoError(b, err)
	require.Equal(b, c.out.Scan(), true, "a child answers")
	n, err := strconv.ParseInt(c.out.Text(), 10, 64)
	require.NoError(b, err)
	return time.Duration(n)
}

// holdChild holds the name until it is killed.
func holdChild(options ...dblock.Option) func(context.Context, database) error {
	return func(ctx context.Context, d database) error {
		c, end, err := d.childClient(ctx, options)
		if err != nil {
			return err
		}
		defer end()
		l, err := c.lock(ctx, os.Getenv("DBLOCK_BENCH_CHILD_NAME"))
		if err != nil {
			return err
		}
		context.AfterFunc(l.Context(), func() { fmt.Fprintln(os.Stderr, context.Cause(l.Context())) })
		fmt.Println("ready")
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
}

// firstChild locks the name when it is told to, and says how long that took.
func firstChild(ctx context.Context, d database) error {
	c, end, err := d.childClient(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	start := time.Now()
	l, err := c.lock(ctx, os.Getenv("DBLOCK_BENCH_CHILD_NAME"))
	if err != nil {
		return err
	}
	fmt.Println(int64(time.Since(start)))
	return l.Unlock(ctx)
}

// childClient makes the client of a child.
func (d database) childClient(ctx context.Context, options []dblock.Option) (c client, end func(), err error) {
	a, err := d.open(ctx, 8, nil)
	if err != nil {
		return nil, nil, err
	}
	if c, err = a.client(options...); err != nil {
		a.close()
		return nil, nil, err
	}
	return c, func() { _ = c.Close(ctx); a.close() }, nil
}
