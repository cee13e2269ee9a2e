package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	// pastSweep is longer than the time within which a client looks for dead processes once.
	pastSweep = 60 * time.Millisecond
	waitFor   = time.Second
)

// BenchmarkDetection is what crash detection costs while no process has crashed, beside clients
// without it, in turns: a refused TryLock that looks for dead processes; a whole client with a pool
// of its own, from its opening to the end of Close, with one pair; and the CPU time of this process
// per second while one goroutine waits. Statements are those beyond heartbeats.
func BenchmarkDetection(b *testing.B) {
	for _, c := range []struct {
		name  string
		turns int
		turn  func(s side, b *testing.B) time.Duration
	}{{"tries", 50, side.try}, {"clients", 50, side.whole}, {"waits", 5, side.wait}} {
		b.Run(c.name, func(b *testing.B) {
			each(b, func(b *testing.B, k kind) {
				d := k.create(b)
				other := d.mustOpen(b, 4, nil).mustClient(b, dblock.WithoutReaper())
				require.NoError(b, require.ErrOf(other.lock(b.Context(), "held")))
				sides := [2]side{newSide(b, d), newSide(b, d, dblock.WithoutCrashDetection())}
				var times [2][]time.Duration
				var statements [2]float64
				for b.Loop() {
					for i := range 2 * c.turns {
						which := (i + i/2) % 2 // each is first as often
						s := sides[which]
						s.count.reset()
						times[which] = append(times[which], c.turn(s, b))
						_, beyond, _ := s.count.reset()
						statements[which] += float64(beyond)
					}
				}
				turns := float64(len(times[0]))
				p50, without := quantile(times[0], 0.5), quantile(times[1], 0.5)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(p50)/float64(without), "p50-ratio")
				b.ReportMetric(millis(p50), "p50-ms")
				b.ReportMetric(millis(without), "without-p50-ms")
				b.ReportMetric(statements[0]/turns, "stmts")
				b.ReportMetric(statements[1]/turns, "without-stmts")
			})
		})
	}
}

// side is an application with or without crash detection, and its client.
type side struct {
	*app
	client
	options []dblock.Option
	count   *counter
}

func newSide(b *testing.B, d database, options ...dblock.Option) side {
	b.Helper()
	s := side{count: newCounter(), options: append(options, dblock.WithoutReaper())}
	s.app = d.mustOpen(b, 8, s.count)
	s.client = s.app.mustClient(b, s.options...)
	require.NoError(b, pair(b.Context(), s.client, "own"))
	return s
}

func (s side) try(b *testing.B) time.Duration {
	time.Sleep(pastSweep)
	start := time.Now()
	err := require.ErrOf(s.tryLock(b.Context(), "held"))
	took := time.Since(start)
	require.ErrorIs(b, err, dblock.ErrNotAcquired)
	return took
}

func (s side) whole(b *testing.B) time.Duration {
	start := time.Now()
	a, err := s.open(b.Context(), 8, s.count)
	require.NoError(b, err)
	defer a.close()
	c, err := a.client(s.options...)
	require.NoError(b, err)
	require.NoError(b, pair(b.Context(), c, "whole"))
	require.NoError(b, c.Close(b.Context()))
	return time.Since(start)
}

func (s side) wait(b *testing.B) time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), waitFor)
	defer cancel()
	before := cpuOfThreads(b)
	assert.ErrorIs(b, assert.ErrOf(s.lock(ctx, "held")), context.DeadlineExceeded, "a waiter ended")
	return (cpuOfThreads(b) - before) / time.Duration(waitFor/time.Second)
}

// cpuOfThreads is the CPU time of the threads of this process, in nanoseconds and not in ticks.
func cpuOfThreads(b *testing.B) (all time.Duration) {
	b.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/schedstat")
	require.NoError(b, err)
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		var ran time.Duration
		_, _ = fmt.Sscan(string(text), (*int64)(&ran))
		all += ran
	}
	return all
}
