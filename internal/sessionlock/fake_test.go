package sessionlock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dblock-go/dblock/internal/driver"
)

// fake is a server with session locks and queues in memory. It shows what the keepers do to it.
type fake struct {
	mu      sync.Mutex
	change  *sync.Cond
	keys    map[string]*fakeKey
	pins    []*fakePin // opened, ever
	open    map[*fakeWaiter]bool
	waiters int    // open now
	most    int    // open at a time, so far
	tries   int    // to open a waiter, ever
	refuse  error  // of Pin
	away    error  // of Pin and Waiter
	stall   bool   // Run does not come back
	name    string // of the running server
	gap     func() // called once, when a waiter has seen the lock free
	leaving func() // called before a waiter leaves
	wrong   bool   // Give says that nothing was held
}

type fakeKey struct {
	holders map[any]int // a share counts 1, the exclusive holder 1000
	queue   []*fakeWaiter
}

func newFake() *fake {
	f := &fake{keys: map[string]*fakeKey{}, open: map[*fakeWaiter]bool{}, name: "a"}
	f.change = sync.NewCond(&f.mu)
	return f
}

func (f *fake) Key(name string) string { return name[:min(len(name), 4)] }

func (f *fake) key(name string) *fakeKey {
	if f.keys[name] == nil {
		f.keys[name] = &fakeKey{holders: map[any]int{}}
	}
	return f.keys[name]
}

// free is what a session sees: its own locks are not in its way.
func (k *fakeKey) free(to any, shared bool) bool {
	for who, n := range k.holders {
		if who != to && (!shared || n >= 1000) {
			return false
		}
	}
	return true
}

func (k *fakeKey) take(who any, shared bool) bool {
	if !k.free(who, shared) {
		return false
	}
	if shared {
		k.holders[who]++
	} else {
		k.holders[who] += 1000
	}
	return true
}

// do changes the server, and wakes all that wait for a change.
func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.change.Broadcast()
}

func (f *fake) queued(name string) (n int) {
	f.do(func() { n = len(f.key(name).queue) })
	return n
}

type fakePin struct {
	f    *fake
	name string
	runs int
	dead error
}

func (f *fake) Pin(context.Context) (Pin[string], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(f.refuse, f.away); err != nil {
		return nil, err
	}
	p := &fakePin{f: f, name: f.name}
	f.pins = append(f.pins, p)
	return p, nil
}

func (p *fakePin) Server() string { return p.name }

// until waits for a condition. MUST be called with mu locked.
func (f *fake) until(ctx context.Context, condition func() bool) error {
	stop := context.AfterFunc(ctx, func() { f.do(func() {}) })
	defer stop()
	for !condition() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.change.Wait()
	}
	return nil
}

func (p *fakePin) Do(ctx context.Context, ops []*Op[string]) error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.until(ctx, func() bool { return !f.stall || p.dead != nil }); err != nil {
		return err
	}
	if p.dead != nil {
		return p.dead
	}
	p.runs++
	for _, op := range ops {
		k := f.key(op.Key)
		switch op.Kind {
		case Try:
			op.OK = len(k.queue) == 0 && k.take(p, op.Shared)
		case Take:
			op.OK = k.take(p, op.Shared)
		case Give:
			op.OK = k.holders[p] > 0 && !f.wrong
			if k.holders[p]--; !op.Shared {
				k.holders[p] -= 999
			}
			if k.holders[p] <= 0 {
				delete(k.holders, p)
			}
		}
	}
	f.change.Broadcast()
	return nil
}

func (p *fakePin) Watch(ctx context.Context) error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	_ = p.f.until(ctx, func() bool { return p.dead != nil })
	return p.dead
}

func (p *fakePin) Close() { p.f.do(p.close) }

func (p *fakePin) close() {
	for _, k := range p.f.keys {
		delete(k.holders, p)
	}
	p.dead = errors.Join(p.dead, errors.New("closed"))
}

type fakeWaiter struct {
	f    *fake
	name string
	shut bool
	cut  bool
}

func (f *fake) Waiter(ctx context.Context) (Waiter[string], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if err := errors.Join(ctx.Err(), f.away); err != nil {
		return nil, err
	}
	f.waiters++
	f.most = max(f.most, f.waiters)
	w := &fakeWaiter{f: f, name: f.name}
	f.open[w] = true
	return w, nil
}

// cut ends all connections.
func (f *fake) cut() {
	f.do(func() {
		for w := range f.open {
			w.cut = true
		}
		for _, p := range f.pins {
			p.close()
		}
	})
}

// cutWaiters ends the connections that wait.
func (f *fake) cutWaiters() {
	f.do(func() {
		for w := range f.open {
			w.cut = true
		}
	})
}

func (w *fakeWaiter) Server() string { return w.name }

func (w *fakeWaiter) Wait(ctx context.Context, name string, shared bool) error {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.key(name)
	if !slices.Contains(k.queue, w) {
		k.queue = append(k.queue, w)
		f.change.Broadcast()
	}
	err := f.until(ctx, func() bool { return w.shut || w.cut || k.queue[0] == w && k.free(w, shared) })
	if w.shut {
		return errors.New("shut")
	}
	if w.cut {
		return driver.Fail(driver.ErrUnavailable, errors.New("cut"))
	}
	if err == nil && f.gap != nil {
		gap := f.gap
		f.gap = nil
		gap()
	}
	return err
}

func (w *fakeWaiter) Leave(_ context.Context, name string) error {
	w.f.mu.Lock()
	leaving := w.f.leaving
	w.f.mu.Unlock()
	if leaving != nil {
		leaving()
	}
	w.f.do(func() {
		k := w.f.key(name)
		k.queue = slices.DeleteFunc(k.queue, func(o *fakeWaiter) bool { return o == w })
	})
	return nil
}

func (w *fakeWaiter) Close() {
	w.f.do(func() {
		w.shut = true
		delete(w.f.open, w)
		w.f.waiters--
		for _, k := range w.f.keys {
			k.queue = slices.DeleteFunc(k.queue, func(o *fakeWaiter) bool { return o == w })
		}
	})
}
