package dblock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// BenchmarkObserver measures a Lock and its Unlock on a database in memory: without an observer,
// with one that has no callbacks, and with one that has all.
func BenchmarkObserver(b *testing.B) {
	calls := 0
	all := observe.Observer{
		AcquireStart: func(ctx context.Context, _ observe.Attempt) context.Context { calls++; return ctx },
		AcquireEnd:   func(context.Context, observe.Attempt, observe.AcquireResult) { calls++ },
		HoldEnd:      func(observe.HoldResult) { calls++ },
		Heartbeat:    func(time.Duration, error) {},
		Listener:     func(bool, error) {},
	}
	for _, c := range []struct {
		name    string
		options []dblock.Option
	}{
		{"none", nil}, {"empty", []dblock.Option{dblock.WithObserver(observe.Observer{})}},
		{"full", []dblock.Option{dblock.WithObserver(all)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			client, err := dblock.New(driver.Engine[*sync.Mutex]{Backend: memory.NewLine(memory.NewDB())},
				append(c.options, dblock.WithTTL(24*time.Hour), dblock.WithoutReaper())...)
			require.NoError(b, err)
			defer client.Close(context.Background())
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				l, err := client.Lock(ctx, "n")
				require.NoError(b, err)
				require.NoError(b, l.Unlock(ctx))
			}
		})
	}
	if calls == 0 {
		b.Error("nobody was told of anything")
	}
}
