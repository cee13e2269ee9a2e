package smoke

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

func TestSmokeCohorts(t *testing.T) {
	f := dblocktest.New[any](t)
	procs := []*dblocktest.Fake[any]{f, f.Another(t), f.Another(t)}
	var inside atomic.Int32
	var last atomic.Int64
	var grants, gave, entered atomic.Int64
	end := time.Now().Add(3 * time.Second)
	var all sync.WaitGroup
	for _, p := range procs {
		for range 16 {
			all.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithCancel(context.Background())
					if rand.IntN(10) == 0 {
						ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
					}
					l, err := p.Client.Lock(ctx, "n")
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						gave.Add(1)
						cancel()
						continue
					}
					if inside.Add(1) != 1 {
						t.Error("two")
					}
					if b := last.Swap(l.Token()); b >= l.Token() {
						t.Errorf("token %d after %d", l.Token(), b)
					}
					grants.Add(1)
					if rand.IntN(20) == 0 {
						if in, err := p.Client.Lock(l.Context(), "other"+string(rune('a'+rand.IntN(3)))); err != nil {
							t.Error(err)
						} else {
							entered.Add(1)
							_ = in.Unlock(context.Background())
						}
					}
					if rand.IntN(50) == 0 {
						if err := l.Downgrade(context.Background()); err != nil && !errors.Is(err, dblock.ErrUnsupported) {
							t.Error("downgrade", err)
						}
					}
					inside.Add(-1)
					if err := l.Unlock(context.Background()); err != nil {
						t.Error("unlock", err)
					}
					cancel()
				}
			})
		}
	}
	all.Wait()
	t.Log(grants.Load(), gave.Load(), entered.Load())
}
