package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	waiters = 200
	// window is how long the statements are counted: one TTL of 15 s, so that whatever has a rhythm
	// shows.
	window = 15 * time.Second
)

// BenchmarkIdle counts what one holder and 200 idle waiters cost: statements a second and
// connections, per client. The connections are those that stay when the pool has closed its idle
// ones, less that of the heartbeat. All four cases are counted at the same time, each in a database
// of its own.
func BenchmarkIdle(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		var cases []*idle
		for _, clients := range []int{1, 4} {
			for reaper, options := range map[string][]dblock.Option{"": {dblock.WithoutReaper()}, "+reaper": nil} {
				cases = append(cases, newIdle(b, k, clients, reaper, options))
			}
		}
		time.Sleep(2 * time.Second) // listeners are up, first looks are over
		for _, c := range cases {
			for _, a := range c.apps {
				a.rest()
			}
			c.count.reset()
		}
		b.ResetTimer()
		var elapsed time.Duration
		for b.Loop() {
			start := time.Now()
			time.Sleep(window)
			elapsed += time.Since(start)
		}
		b.ReportMetric(0, "ns/op")
		for _, c := range cases {
			all, beyond, words := c.count.reset()
			perClient := elapsed.Seconds() * float64(c.clients)
			b.Logf("%s: %s", c.name, words)
			b.ReportMetric(float64(all)/perClient, c.name+":stmt/s")
			b.ReportMetric(float64(beyond)/perClient, c.name+":stmt/s-beyond-heartbeat")
			b.ReportMetric(float64(c.connections(b))/float64(c.clients)-1, c.name+":conns-beyond-heartbeat")
		}
	})
}

// idle is one holder and its waiters, over some clients.
type idle struct {
	database
	name    string
	clients int
	count   *counter
	apps    []*app
}

func newIdle(b *testing.B, k kind, clients int, reaper string, options []dblock.Option) *idle {
	b.Helper()
	c := &idle{database: k.create(b), name: fmt.Sprintf("%d%s", clients, reaper), clients: clients, count: newCounter()}
	probe := c.database.mustOpen(b, 1, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for i := range clients {
		a := c.database.mustOpen(b, 8, c.count)
		c.apps = append(c.apps, a)
		cl := a.mustClient(b, options...)
		if i == 0 {
			require.NoError(b, require.ErrOf(cl.lock(ctx, "name")))
		}
		for range waiters / clients {
			waiting.Go(func() {
				assert.ErrorIs(b, assert.ErrOf(cl.lock(ctx, "name")), context.Canceled, "a waiter ended")
			})
		}
	}
	b.Cleanup(func() { cancel(); waiting.Wait() })
	queued(b, probe, waiters)
	probe.close()
	return c
}

func (c *idle) connections(b *testing.B) (n int) {
	if c.kind.env != "" {
		return c.database.connections(b, c.apps[0])
	}
	for _, a := range c.apps {
		n += c.database.connections(b, a)
	}
	return n
}

// queued waits until so many stand in queues.
func queued(b *testing.B, a *app, want int) {
	b.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		n := waitersOf(b, a)
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d wait after three minutes: want %d", n, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
