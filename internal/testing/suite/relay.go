package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// counting counts what is sent of a lock. A request that joins waits while the gate is shut.
type counting struct {
	gate chan struct{} // closed: open

	came, removed, changed atomic.Int64 // came: to the gate
	mu                     sync.Mutex
	joined                 []int         // the members of each request that has joined
	answer                 chan struct{} // not nil: answers about other ops are held back until it is closed
}

func (c *counting) hook(ctx context.Context, call *fakedb.Call) error {
	if call.Method != "Run" {
		return call.Do(ctx)
	}
	switch op := call.Ops[0].(type) {
	case protocol.Take:
	case protocol.Join:
		c.came.Add(1)
		select {
		case <-c.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
		c.joined = append(c.joined, max(op.Members, 1))
		c.mu.Unlock()
	case protocol.Removal:
		c.removed.Add(1)
	default:
		err := call.Do(ctx)
		c.changed.Add(1)
		if c.answer != nil {
			<-c.answer
		}
		return err
	}
	return call.Do(ctx)
}

// relay is a client of which some goroutines are about to get a lock as a cohort.
type relay struct {
	*counting
	app     App
	client  Client
	waiters []<-chan outcome
	cancels []context.CancelFunc
	before  *dblock.Lock // of another client, which has the lock until then
}

// relay has goroutines of one client queue behind another client, one after the other, in one
// place: their request waits for the outcome of one from before, which has given up then.
func (e *env) relay(t *testing.T, name string, n int, options ...dblock.Option) *relay {
	t.Helper()
	a := e.app(t, 5)
	r := &relay{app: a, counting: &counting{gate: make(chan struct{})}}
	open := sync.OnceFunc(func() { close(r.gate) })
	t.Cleanup(open)
	a.hook(r.counting.hook)
	r.client = e.clientOf(t, a, options...)
	r.before = lock(t, e.client(t), name)
	ask := func() (<-chan outcome, context.CancelFunc) {
		waiting := r.client.Stats().Waiting
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		asked := locking(ctx, r.client, name)
		eventually(t, patience, "it has asked", func() bool { return r.client.Stats().Waiting == waiting+1 })
		return asked, cancel
	}
	early, leave := ask()
	eventually(t, patience, "its request is being sent", func() bool { return r.came.Load() == 1 })
	for range n {
		asked, cancel := ask()
		r.waiters, r.cancels = append(r.waiters, asked), append(r.cancels, cancel)
	}
	open()
	e.queued(t, name, n+1)
	leave()
	calledOff(t, within(t, soon, "it gives up", early).err, context.Canceled)
	e.queued(t, name, n)
	r.removed.Store(0)
	return r
}

// second lets the first member of a relay have the lock and pass it on, and returns the second's
// lock.
func (r *relay) second(t *testing.T) *dblock.Lock {
	t.Helper()
	unlock(t, r.before)
	unlock(t, granted(t, soon, r.waiters[0]))
	return granted(t, soon, r.waiters[1])
}

// rest has those behind a lock have it, each with a higher token, and the name is free then.
func (r *relay) rest(t *testing.T, e *env, l *dblock.Lock, waiters ...<-chan outcome) {
	t.Helper()
	last := l.Token()
	for _, waiter := range waiters {
		next := granted(t, soon, waiter)
		if next.Token() <= last {
			t.Errorf("token %d after %d", next.Token(), last)
		}
		last = next.Token()
		unlock(t, next)
	}
	e.free(t, l.Name())
}

// anew has those behind a lock that was lost have it in any order: they have asked anew.
func (r *relay) anew(t *testing.T, e *env, l *dblock.Lock, waiters ...<-chan outcome) {
	t.Helper()
	all := make(chan outcome, len(waiters))
	for _, waiter := range waiters {
		go func() { all <- <-waiter }()
	}
	last := l.Token()
	for range waiters {
		next := granted(t, soon, all)
		if next.Token() <= last {
			t.Errorf("token %d after %d", next.Token(), last)
		}
		last = next.Token()
		unlock(t, next)
	}
	e.free(t, l.Name())
}
