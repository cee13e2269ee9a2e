package sessionlock

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// in runs a test in a bubble with a fake server, where time moves when all else has come to rest.
// At its end nothing of the keepers may be left on the server.
func in(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, fake: newFake()}
		test(b)
		for _, k := range b.keepers {
			assert.NoError(t, k.Close(context.Background()))
		}
		b.do(func() {
			assert.Equal(t, b.waiters, 0, "waiters were left open")
			for name, k := range b.keys {
				if len(k.holders) > 0 || len(k.queue) > 0 {
					t.Errorf("%s was left with %d holders and %d in the queue", name, len(k.holders), len(k.queue))
				}
			}
		})
	})
}

type bench struct {
	*testing.T
	*fake
	keepers []*Keeper[string]
}

func (b *bench) keeper() *Keeper[string] {
	k := New(b.fake, slog.New(slog.DiscardHandler), patience)
	b.keepers = append(b.keepers, k)
	return k
}

// patience is for how long waits survive without the server.
const patience = 15 * time.Second

const (
	alone  = false
	shared = true
)

func (b *bench) lock(k *Keeper[string], name string, shared bool) Possession {
	b.Helper()
	p, ok, err := k.Acquire(context.Background(), name, shared, true)
	if err != nil || !ok {
		b.Fatalf("lock %s: %v, %v", name, ok, err)
	}
	return p
}

// try reports whether TryLock got it; it gives it back at once.
func (b *bench) try(k *Keeper[string], name string, shared bool) bool {
	b.Helper()
	p, ok, err := k.Acquire(context.Background(), name, shared, false)
	require.NoError(b, err, "try", name)
	if ok {
		b.unlock(p)
	}
	return ok
}

func (b *bench) unlock(p Possession) {
	b.Helper()
	require.NoError(b, p.Release(context.Background()), "unlock")
}

// call is a Lock that was called and may have returned.
type call struct {
	cancel context.CancelFunc
	done   chan struct{}
	p      Possession
	err    error
}

// begin calls Lock, and returns when everything has come to rest.
func (b *bench) begin(k *Keeper[string], name string, shared bool) *call {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.p, _, c.err = k.Acquire(ctx, name, shared, true)
	}()
	synctest.Wait()
	return c
}

func (c *call) returned() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (b *bench) has(c *call) Possession {
	b.Helper()
	if !c.returned() || c.p == nil {
		b.Fatalf("it does not have the lock: returned %v, %v", c.returned(), c.err)
	}
	return c.p
}

func (b *bench) waits(calls ...*call) {
	b.Helper()
	for i, c := range calls {
		if c.returned() {
			b.Fatalf("call %d returned: %v, %v", i, c.p, c.err)
		}
	}
}
