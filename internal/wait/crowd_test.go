package wait

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
)

// crowd is a name that many dead sessions share. Each look shows one of them.
type crowd struct {
	mu   sync.Mutex
	left int
	hub  *Hub
}

func (c *crowd) Read(context.Context, string, []string, int) ([]driver.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := driver.State{Name: "n", Waiters: 1, Queued: []string{"a"}, Sharing: c.left}
	if c.left > 0 {
		s.Holder = protocol.Holder{Session: "dead", Units: 1, Left: -1, Grant: protocol.Grant{Token: int64(c.left)}}
	}
	return []driver.State{s}, nil
}

func (c *crowd) Recount(context.Context, string) (protocol.Result, error) {
	return protocol.Result{}, nil
}

func (c *crowd) Sweep(context.Context) bool { return false }

func (c *crowd) TakeOver(context.Context, string, protocol.Holder) (protocol.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left <= 0 {
		c.hub.Deliver([]protocol.Handoff{{Session: me, Attempt: "a", Grant: protocol.Grant{Token: 99}}}, 0)
	}
	return protocol.Result{Outcome: protocol.Done}, nil
}

func (c *crowd) Listen(ctx context.Context, ready func(), _ func(protocol.Hint)) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func TestManyDeadHoldersAreTakenFromAsFastAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		began := time.Now()
		c := &crowd{left: 1000}
		h := New(ctx, c, me, Config{
			Client: quietClient{},
			Clock:  clock.Func(func() time.Duration { return time.Since(began) }), Safety: time.Minute,
			Limit: time.Minute,
			Log:   quiet, Hearing: outage.New(quiet, ""), Looking: outage.New(quiet, ""), Taking: outage.New(quiet, ""),
		})
		c.hub = h
		w := h.enter("n", "a")
		if r := <-w.answers; !r.Granted || time.Since(began) > time.Second {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		cancel()
		h.Wait()
	})
}
