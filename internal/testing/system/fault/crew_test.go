//go:build unix

package fault

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
	modeLoad  = "load"  // lock, write if the lock is not shared, unlock
	modeChaos = "chaos" // whatever the API allows
	modeHold  = "hold"  // lock, or try to, hold for some tenths of a second, unlock
	modeOnce  = "once"  // jobs that run once per slot
)

// firstCrewOp is above what the parent numbers.
const firstCrewOp = 1 << 20

// crew is the workers of one actor, which act on their own until they are paused. Two share a
// client.
type crew struct {
	actor   *actor
	mode    string
	names   []string
	slot    time.Duration // modeOnce
	clients []atomic.Pointer[client]
	workers sync.WaitGroup
	ops     atomic.Int64
	done    atomic.Int64 // what is only counted

	mu        sync.Mutex // protects what follows
	moved     sync.Cond  // signals each change
	paused    bool
	dismissed bool
	busy      int
	quiet     chan struct{} // closed while paused
	failed    error
}

func (a *actor) hire(c command) *crew {
	w := &crew{actor: a, mode: c.Name, names: c.Names, slot: c.For, clients: make([]atomic.Pointer[client],
		(c.Workers+1)/2), quiet: make(chan struct{})}
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

// begin waits while there is a pause. It returns false if the worker has to end.
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

// pause keeps new work from starting, ends the work under locks, and waits for the workers that
// wait for a lock.
func (w *crew) pause() event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	close(w.quiet)
	for w.busy > 0 {
		w.moved.Wait()
	}
	return event{What: evIdle, Rows: w.done.Load()}
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

// replace gives the workers of a client another one, and closes the old one while they use it.
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
	case w.mode == modeHold:
		for_ = 20*time.Millisecond + 40*for_
	case n < w.actor.config.Long && w.mode == modeChaos:
		for_ = time.Duration(random.Int64N(int64(w.actor.config.TTL * 6 / 5)))
	case n >= 90:
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
	if w.mode == modeOnce {
		w.once(ctx, random, c)
		return
	}
	name, op := w.names[random.IntN(len(w.names))], int(w.ops.Add(1))
	kind := random.IntN(100)
	if w.mode == modeLoad {
		kind = 0
	}
	switch {
	case w.mode == modeHold && kind < 60:
		ctx, cancel := context.WithTimeout(ctx, time.Second+time.Duration(random.Int64N(int64(2*time.Second))))
		defer cancel()
		w.hold(ctx, random, c, op, name, false)
	case w.mode == modeHold:
		w.hold(ctx, random, c, op, name, kind < 80)
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
	g := gradeOf(random, name)
	h := w.actor.acquire(ctx, c, op, name, g, try)
	if h == nil {
		return
	}
	if w.mode == modeLoad && g == (portion{}) {
		w.actor.write(h)
	}
	w.linger(random)
	for w.mode != modeHold && isRead(name) && random.IntN(2) == 0 {
		w.actor.regrade(h)
		w.linger(random)
	}
	w.actor.unlock(h)
	w.actor.forget(op)
}

// nest enters a lock again that is held; permits are not entered, and the other way to take a name
// twice waits for itself.
func (w *crew) nest(ctx context.Context, random *rand.Rand, c *client, op int, name string) {
	a, asked, g := w.actor, session.Boottime(), gradeOf(random, name)
	if g.Units > 0 && g != reader {
		w.hold(ctx, random, c, op, name, false)
		return
	}
	a.report(event{What: evAsked, Op: op, Name: name, At: asked, Portion: g})
	entered := false
	err := c.Do(ctx, name, func(ctx context.Context, outer *held) error {
		entered = true
		a.hold(op, outer, g, asked)
		asked := session.Boottime()
		inner, err := c.Lock(ctx, name, g.options()...)
		switch {
		case err == nil && inner.Token() == outer.Token():
			a.report(event{What: evReheld, Op: op, Name: name, Token: inner.Token()})
			w.linger(random)
			err = inner.Unlock(ctx)
		case err == nil: // the outer one was lost meanwhile, and this is a hold of its own
			op := int(w.ops.Add(1))
			a.report(event{What: evAsked, Op: op, Name: name, At: asked, Portion: g})
			a.unlock(a.hold(op, inner, g, asked))
			a.forget(op)
		}
		a.report(event{What: evEnding, Op: op, Name: name, Token: outer.Token(), Live: a.witness.live(op)})
		return err
	}, g.options()...)
	what := evUnlocked
	if !entered {
		what = evRefused
	}
	a.report(event{What: what, Op: op, Name: name, Portion: g}.with(err))
	a.witness.remove(op)
	a.forget(op)
}

// forget drops the handle of a hold that is not needed again.
func (a *actor) forget(op int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.handles, op)
}
