package faulttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// What a crew does.
const (
	modeLoad  = "load"  // lock, write, unlock
	modeChaos = "chaos" // whatever the API allows
)

// firstCrewOp is above what the parent numbers.
const firstCrewOp = 1 << 20

// crew is workers of one actor who act on their own, until they are paused. Two share a client.
type crew struct {
	actor   *actor
	mode    string
	names   []string
	clients []atomic.Pointer[client]
	workers sync.WaitGroup
	ops     atomic.Int64

	mu        sync.Mutex // protects what follows
	moved     sync.Cond  // signals each change
	paused    bool
	dismissed bool
	busy      int
	quiet     chan struct{} // closed while paused
	failed    error
}

func (a *actor) hire(c command) *crew {
	w := &crew{actor: a, mode: c.Name, names: c.Names, clients: make([]atomic.Pointer[client], (c.Workers+1)/2), quiet: make(chan struct{})}
	w.moved.L = &w.mu
	w.ops.Store(firstCrewOp)
	for i := range w.clients {
		w.replace(i)
	}
	for i := range c.Workers {
		random := rand.New(rand.NewPCG(a.config.Seed, uint64(i)))
		w.workers.Go(func() {
			for w.begin() {
				w.turn(random, i/2)
				w.end()
			}
		})
	}
	return w
}

// begin waits while there is a pause; false: go home.
func (w *crew) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.paused && !w.dismissed {
		w.moved.Wait()
	}
	if w.dismissed {
		return false
	}
	w.busy++
	return true
}

func (w *crew) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	w.moved.Broadcast()
}

// pause keeps new work from starting, ends the work under locks, and waits for whoever waits for a lock.
func (w *crew) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	close(w.quiet)
	for w.busy > 0 {
		w.moved.Wait()
	}
}

func (w *crew) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused, w.quiet = false, make(chan struct{})
	w.moved.Broadcast()
}

func (w *crew) dismiss() error {
	w.mu.Lock()
	w.dismissed = true
	w.moved.Broadcast()
	w.mu.Unlock()
	w.workers.Wait()
	err := w.failed
	for i := range w.clients {
		err = errors.Join(err, w.clients[i].Load().close())
	}
	return err
}

// replace gives the workers of a client another one, and closes theirs under their hands.
func (w *crew) replace(i int) {
	c, err := w.actor.newClient()
	if err != nil {
		w.fail(err)
		return
	}
	if old := w.clients[i].Swap(c); old != nil {
		_ = old.close() // an error is that the database was away: its session expires
	}
}

func (w *crew) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errors.Join(w.failed, err)
}

// linger works for a while, mostly short, seldom so long that faults fall into it.
func (w *crew) linger(random *rand.Rand) {
	for_ := time.Duration(random.Int64N(int64(10 * time.Millisecond)))
	switch n := random.IntN(100); {
	case n == 0 && w.mode == modeChaos:
		for_ = time.Duration(random.Int64N(int64(w.actor.config.TTL * 6 / 5)))
	case n < 10:
		for_ *= 5
	}
	w.mu.Lock()
	quiet := w.quiet
	w.mu.Unlock()
	select {
	case <-quiet:
	case <-time.After(for_):
	}
}

func (w *crew) turn(random *rand.Rand, i int) {
	ctx, c := context.Background(), w.clients[i].Load()
	name, op := w.names[random.IntN(len(w.names))], int(w.ops.Add(1))
	kind := random.IntN(100)
	if w.mode == modeLoad {
		kind = 0
	}
	switch {
	case kind < 50:
		w.hold(ctx, random, c, op, name, false)
	case kind < 70:
		ctx, cancel := context.WithTimeout(ctx, 1+time.Duration(random.Int64N(int64(150*time.Millisecond))))
		defer cancel()
		w.hold(ctx, random, c, op, name, false)
	case kind < 86:
		w.hold(ctx, random, c, op, name, true)
	case kind < 98:
		w.nest(ctx, random, c, op, name)
	default:
		w.replace(i)
	}
}

func (w *crew) hold(ctx context.Context, random *rand.Rand, c *client, op int, name string, try bool) {
	h := w.actor.acquire(ctx, c, op, name, try)
	if h == nil {
		return
	}
	if w.mode == modeLoad {
		w.actor.write(h)
	}
	w.linger(random)
	w.actor.unlock(h)
	w.actor.forget(op)
}

// nest enters a lock again that is held.
func (w *crew) nest(ctx context.Context, random *rand.Rand, c *client, op int, name string) {
	a, asked := w.actor, session.Boottime()
	a.report(event{What: evAsked, Op: op, Name: name, At: asked})
	entered := false
	err := c.Do(ctx, name, func(ctx context.Context, outer *held) error {
		entered = true
		a.hold(op, outer, asked)
		asked := session.Boottime()
		inner, err := c.Lock(ctx, name)
		switch {
		case err == nil && inner.Token() == outer.Token():
			a.report(event{What: evReheld, Op: op, Name: name, Token: inner.Token()})
			w.linger(random)
			err = inner.Unlock(ctx)
		case err == nil: // the outer one was lost meanwhile, and this is a hold of its own
			op := int(w.ops.Add(1))
			a.report(event{What: evAsked, Op: op, Name: name, At: asked})
			a.unlock(a.hold(op, inner, asked))
			a.forget(op)
		}
		a.report(event{What: evEnding, Op: op, Name: name, Token: outer.Token(), Live: a.witness.live(op)})
		return err
	})
	what := evUnlocked
	if !entered {
		what = evRefused
	}
	a.report(event{What: what, Op: op, Name: name}.with(err))
	a.witness.remove(op)
	a.forget(op)
}

// forget drops the handle of a hold that nobody asks for again.
func (a *actor) forget(op int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.handles, op)
}
