package dblock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// instant is a database in memory that answers at once, so that what is measured is the client's.
// One goroutine uses it.
type instant struct {
	driver.Backend
	token int64
}

type nothing struct{}

func (nothing) Heartbeat(context.Context, string, time.Duration) (bool, error) { return true, nil }
func (nothing) Claims(context.Context, string, int) ([]driver.Claim, error)    { return nil, nil }
func (nothing) Listen(ctx context.Context, _ string, _ func(), _ func(driver.Hint)) error {
	<-ctx.Done()
	return ctx.Err()
}
func (nothing) Close() error                                                 { return nil }
func (*instant) Validate() error                                             { return nil }
func (*instant) Connections() (inUse, most int)                              { return 0, 0 }
func (*instant) Attend(string, time.Duration) (leave func())                 { return func() {} }
func (*instant) OpenSession(context.Context, driver.Session) error           { return nil }
func (*instant) EndSession(context.Context, string) error                    { return nil }
func (*instant) Upkeep(context.Context, string) (driver.Upkeep, error)       { return nothing{}, nil }
func (*instant) Claims(context.Context, string, int) ([]driver.Claim, error) { return nil, nil }
func (*instant) Schema(context.Context) (driver.Schema, error) {
	return driver.Schema{Version: driver.SchemaVersion}, nil
}

// Run grants what it is asked for, and releases.
func (i *instant) Run(context.Context, ...protocol.Op) ([]protocol.Result, error) {
	i.token++
	grant := driver.Grant{First: i.token, Token: i.token}
	return []protocol.Result{{Outcome: protocol.Done, Grant: grant}}, nil
}

// BenchmarkObserver is a Lock and its Unlock, without I/O: without an observer, with one that has
// no callbacks, and with one that has all.
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
			client, err := dblock.New(driver.Engine[*sync.Mutex]{Backend: &instant{}},
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
