// Package wait lets any number of goroutines of one session wait for their turn without a
// connection each: one listener hears of grants, one loop looks them up, for all of them at once.
//
// A wake-up is only a hint, unless it brings the grant along. What counts is what the loop reads
// from the database, and it reads on its own account as well: when a holder's lease would end, so
// that a crash is noticed then; when the listener has connected, since grants may have been made
// before; and slowly all the while, or fast where the engine has nothing to listen to.
package wait

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

const (
	// firstLook is when a name is looked at that somebody began to wait for. Most hand-offs are
	// faster.
	firstLook = 100 * time.Millisecond
	// pollInterval is how often waiters are looked at while nothing is listening.
	pollInterval = 100 * time.Millisecond
	// busyRetry is when a takeover is tried again that a guarded transaction held up.
	busyRetry = 200 * time.Millisecond
	// slack is how much later than the end of a lease its holder is looked at.
	slack = 5 * time.Millisecond
	// relisten bounds the pause before a broken listener connects again.
	relistenMin, relistenMax = 100 * time.Millisecond, 5 * time.Second
)

// Backend is what waiting needs of an engine.
type Backend interface {
	Look(ctx context.Context, session string, names []string) ([]driver.State, error)
	Reclaim(ctx context.Context, self, name string, holder driver.Holder) (next []driver.Handoff, taken bool, err error)
	Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error
}

// Config is the same for all hubs of a client.
type Config struct {
	Clock func() time.Duration
	Log   *slog.Logger
	// Safety is how often everything is looked at although nothing was heard.
	Safety time.Duration
	// Limit bounds each statement.
	Limit time.Duration
	// Stray is told of wake-ups for attempts that nobody waits with, and of those that do not say
	// for whom they are ("").
	Stray func(attempt string)
	// Reclaimed is told of what was taken from a holder whose time was over.
	Reclaimed func(name string, holder driver.Holder)
}

// Result is how a wait ended.
type Result struct {
	Granted bool // false: the attempt is in no queue any more, and holds nothing
	Grant   driver.Grant
	Asked   time.Duration // on the hub's clock, before the statement was sent that told of the grant
}

// Waiter is one attempt that waits.
type Waiter struct {
	Name    string
	Attempt string
	C       chan Result // receives once

	queued  bool     // the database has confirmed the place in the queue
	watcher *Watcher // it waits for nothing but news
}

// Hub is the waiting room of one session.
type Hub struct {
	backend Backend
	session string
	config  Config
	ctx     context.Context
	done    sync.WaitGroup
	stir    chan struct{} // the loop has something new to consider

	mu        sync.Mutex // protects what follows
	started   bool
	listening bool
	watchers  int
	waiters   map[string]*Waiter       // by attempt
	names     map[string]int           // how many waiters each name has
	due       map[string]time.Duration // when each name is to be looked at
	states    map[string]driver.State  // as last seen
}

// New makes the waiting room of a session, which closes with ctx. Nothing runs until somebody
// waits.
func New(ctx context.Context, backend Backend, session string, config Config) *Hub {
	return &Hub{
		backend: backend, session: session, config: config, ctx: ctx, stir: make(chan struct{}, 1),
		waiters: map[string]*Waiter{}, names: map[string]int{}, due: map[string]time.Duration{},
		states: map[string]driver.State{},
	}
}

// Add registers an attempt before it is sent, so that no grant can come too early to be heard.
func (h *Hub) Add(name, attempt string) *Waiter {
	w := &Waiter{Name: name, Attempt: attempt, C: make(chan Result, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[attempt] = w
	h.names[name]++
	return w
}

// Queued notes that the attempt stands in the queue: from now on, to be nowhere means to be gone.
func (h *Hub) Queued(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.queued = true
	h.expect(w)
}

// Attend begins to listen although nobody waits: for the sake of those who hold something and may
// be asked for it.
func (h *Hub) Attend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		h.start()
	}
}

// start MUST be called with mu locked.
func (h *Hub) start() {
	if !h.started {
		h.started = true
		h.done.Go(h.listen)
		h.done.Go(h.loop)
	}
}

// expect looks out for a waiter or a watcher from now on. MUST be called with mu locked.
func (h *Hub) expect(w *Waiter) {
	if h.ctx.Err() != nil || h.waiters[w.Attempt] != w { // over, or answered already
		return
	}
	h.start()
	if _, known := h.due[w.Name]; !known {
		h.due[w.Name] = h.config.Clock() + firstLook
		h.wakeLoop()
	}
}

// Remove forgets a waiter, whether it was answered or not.
func (h *Hub) Remove(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters[w.Attempt] == w {
		h.forget(w)
	}
}

// State is how a name that somebody waits for was last seen.
func (h *Hub) State(name string) (driver.State, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.states[name]
	return s, ok
}

// Hand answers the waiters of this hub to whom a lock was handed in this process, without the way
// through the database. asked is the clock before the statement was sent that did it.
func (h *Hub) Hand(next []driver.Handoff, asked time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range next {
		if w := h.waiters[n.Attempt]; w != nil && n.Session == h.session {
			h.answer(w, Result{Granted: true, Grant: n.Grant, Asked: asked})
		}
	}
}

// Doubt has a name looked at, since something may have come of a statement whose outcome is not
// known.
func (h *Hub) Doubt(name string) {
	h.mu.Lock()
	if h.names[name] > 0 {
		h.due[name] = 0
	}
	h.mu.Unlock()
	h.wakeLoop()
}

// Wait returns when nothing of the hub runs any more; its context must have ended.
func (h *Hub) Wait() {
	h.mu.Lock()
	started := h.started // whoever comes after this sees that the context has ended, and starts nothing
	h.mu.Unlock()
	if started {
		h.done.Wait()
	}
}

// forget MUST be called with mu locked.
func (h *Hub) forget(w *Waiter) {
	delete(h.waiters, w.Attempt)
	if w.watcher != nil {
		h.watchers--
	}
	if h.names[w.Name]--; h.names[w.Name] == 0 {
		delete(h.names, w.Name)
		delete(h.due, w.Name)
		delete(h.states, w.Name)
	}
}

// answer MUST be called with mu locked.
func (h *Hub) answer(w *Waiter, r Result) {
	h.forget(w)
	w.C <- r
}

func (h *Hub) wakeLoop() {
	select {
	case h.stir <- struct{}{}:
	default:
	}
}

// listen keeps a listener connected for as long as the session lives.
func (h *Hub) listen() {
	pause := relistenMin
	for h.ctx.Err() == nil {
		err := h.backend.Listen(h.ctx, h.session, func() {
			pause = relistenMin
			h.setListening(true)
		}, h.heard)
		h.setListening(false)
		if h.ctx.Err() != nil {
			return
		}
		if errors.Is(err, driver.ErrUnsupported) {
			h.config.Log.Info("dblock: polling for grants", "session", h.session, "every", pollInterval, "because", err)
			return
		}
		h.config.Log.Warn("dblock: listener lost", "session", h.session, "error", err)
		select {
		case <-h.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, relistenMax)
	}
}

func (h *Hub) setListening(listening bool) {
	h.mu.Lock()
	h.listening = listening
	for name := range h.names {
		h.due[name] = 0 // what happened before was not heard
	}
	h.mu.Unlock()
	if listening && h.config.Stray != nil {
		h.config.Stray("")
	}
	h.wakeLoop()
}

// heard takes a hint: that an attempt was granted, or some attempt. One that brings the grant along
// is the answer: it was sent by the commit that made the grant.
func (h *Hub) heard(hint driver.Hint) {
	h.mu.Lock()
	w := h.waiters[hint.Attempt]
	switch {
	case w != nil && w.watcher == nil && hint.Grant.Token != 0 && hint.Grant.Lease == 0:
		h.answer(w, Result{Granted: true, Grant: hint.Grant, Asked: h.config.Clock()})
	case w != nil:
		h.due[w.Name] = 0
	case hint.Attempt == "":
		for name := range h.names {
			h.due[name] = 0
		}
		for _, w := range h.waiters {
			w.tell(true)
		}
	}
	w.tell(true)
	h.mu.Unlock()
	if w == nil && h.config.Stray != nil {
		h.config.Stray(hint.Attempt)
	}
	h.wakeLoop()
}
