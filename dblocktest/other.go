package dblocktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// waitLimit bounds how long this package waits for a client.
const waitLimit = 10 * time.Second

// other is another process, which holds locks or waits for them.
type other struct {
	t    testing.TB // of the first process of the database
	link *link

	joining sync.Mutex // one Queue at a time, so that the new place is its own

	mu     sync.Mutex // protects client
	client *dblock.Client[any]
}

// get returns the client of the other process, and makes it at the first call.
func (o *other) get() *dblock.Client[any] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.client == nil {
		o.client = clientOn[any](o.t, o.link, []dblock.Option{dblock.WithHost("somebody-else"),
			dblock.WithApp("dblocktest")})
	}
	return o.client
}

// Hold makes another process hold a name, until release is called or the test ends. With Shared it
// is a reader, with Permits it has some of the units; Lease, MinHold and Metadata are as in
// TryLock. The test fails where the name is not free for that. Hold and release are called by the
// test's own goroutine. release is idempotent, and returns after the next waiter was granted the
// name.
func (f *Fake[TX]) Hold(t testing.TB, name string, options ...dblock.LockOption) (release func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	l, err := f.others.get().TryLock(ctx, name, options...)
	if err != nil {
		t.Fatalf("dblocktest: no other process can hold %q: %v", name, err)
	}
	return once(t, func() {
		if err := l.Unlock(context.Background()); err != nil && !errors.Is(err, dblock.ErrLost) {
			t.Errorf("dblocktest: %v", err)
		}
	})
}

// Queue makes another process wait for a name, at the end of its queue, until leave is called or
// the test ends. If the name is granted to it, it holds the name until then. Queue returns as soon
// as the process has a place in the queue, or holds a name that was free. The options are those of
// Lock. leave is idempotent; when it returns the place is given up and the name released. The test
// fails where Lock does.
func (f *Fake[TX]) Queue(t testing.TB, name string, options ...dblock.LockOption) (leave func()) {
	t.Helper()
	c := f.others.get()
	f.others.joining.Lock()
	defer f.others.joining.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	p := &contender{database: f.link.of, name: name, done: make(chan struct{})}
	before := p.attempts(f.others.link)
	go func() {
		defer close(p.done)
		p.lock, p.err = c.Lock(ctx, name, options...)
	}()
	joined := p.await(func() bool {
		for attempt := range p.attempts(f.others.link) {
			if !before[attempt] {
				p.attempt = attempt
			}
		}
		return p.attempt != "" || p.over()
	})
	if !joined || p.over() && p.err != nil {
		cancel()
		<-p.done
		t.Fatalf("dblocktest: no other process can wait for %q: %v", name, p.err)
	}
	return once(t, func() {
		cancel()
		if <-p.done; p.err == nil {
			_ = p.lock.Unlock(context.Background())
		}
		p.await(func() bool { return !p.attempts(f.others.link)[p.attempt] })
	})
}

// contender is a call of Lock by the other process.
type contender struct {
	*database
	name, attempt string
	done          chan struct{} // closed when lock and err are set
	lock          *dblock.Lock
	err           error
}

func (p *contender) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// attempts returns the attempts of a process that have the name or wait for it.
func (p *contender) attempts(of *link) map[string]bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	attempts := map[string]bool{}
	for session, w := range p.clients {
		for _, c := range p.ClaimsOf(session) {
			if w.link == of && c.Name == p.name {
				attempts[c.Attempt] = true
			}
		}
	}
	return attempts
}

// once returns a function that calls f once: when it is called, or when the test ends.
func once(t testing.TB, f func()) func() {
	g := sync.OnceFunc(f)
	t.Cleanup(g)
	return g
}

// AwaitQueue waits until a name has at least n waiters, over all processes. The test fails where
// that does not happen within 10 s.
func (f *Fake[TX]) AwaitQueue(t testing.TB, name string, n int) {
	t.Helper()
	if !f.link.of.await(func() bool { return f.link.of.waiting(name) >= n }) {
		t.Fatalf("dblocktest: %d wait for %q after %v: want %d", f.link.of.waiting(name), name, waitLimit, n)
	}
}

// waiting returns the number of waiters for a name.
func (d *database) waiting(name string) int {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	row, _ := d.Locks.Row(name)
	return row.Waiters
}

// await waits until so returns true. It calls so when a queue changes, and every millisecond. It
// returns false if so is still false after waitLimit.
func (d *database) await(so func() bool) bool {
	limit := time.After(waitLimit)
	for {
		d.Mu.Lock()
		changed := d.Changed
		d.Mu.Unlock()
		if so() {
			return true
		}
		select {
		case <-changed:
		case <-time.After(time.Millisecond):
		case <-limit:
			return so()
		}
	}
}
