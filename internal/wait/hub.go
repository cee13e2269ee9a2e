// Package wait lets any number of goroutines of one session wait for locks without a connection
// each. One listener receives hints of grants, and one loop reads the state of the names, for all
// of them.
//
// A hint without a grant in it only wakes the loop. What counts is what the loop reads from the
// database. It also reads without a hint: when a holder's lease should end, to notice a crash; when
// the listener has connected, because grants may have been made before; and at a slow interval all
// the time, or a fast one where the engine has nothing to listen to.
package wait

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
)

const (
	// firstLook is the delay from the first waiter of a name to the first look at it. Most
	// hand-offs are faster.
	firstLook = 100 * time.Millisecond
	// fastestPoll and slowestPoll bound the interval of looks while no listener is connected.
	// Between them it is a part of the time for which a name has stood still: a name that moves on
	// fast is looked at often, and what is held for long is not.
	fastestPoll, slowestPoll = 5 * time.Millisecond, 100 * time.Millisecond
	stillness                = 8
	// busyRetry is the delay before a takeover is tried again after a guarded transaction refused
	// it.
	busyRetry = 200 * time.Millisecond
	// slack is the delay from the end of a lease to the look at its holder.
	slack = 5 * time.Millisecond
	// readyLimit bounds the wait for the first listener. Without it waiters are polled for.
	readyLimit = 500 * time.Millisecond
	// relistenMin and relistenMax bound the pause before a listener that failed begins again, and
	// relistenRarely that of one that found nothing to listen to: that may change, too.
	relistenMin, relistenMax, relistenRarely = 100 * time.Millisecond, 5 * time.Second, 5 * time.Minute
)

// Backend is the part of an engine and of a session that the hub needs.
type Backend interface {
	driver.Names
	Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error)
	Listen(ctx context.Context, ready func(), wake func(driver.Hint)) error
}

// Config is the same for all hubs of a client.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Hearing, Looking and Taking report the outages of the listener, of looks, and of takeovers.
	Hearing, Looking, Taking *outage.Report
	// Told notes that a hub has said why it polls, and none has listened since; nil: each says so.
	Told *atomic.Bool
	// Safety is the interval of looks without a hint.
	Safety time.Duration
	// Limit bounds each statement.
	Limit time.Duration
	// Stray is called with the attempt of each hint that has no waiter here, and with "" where the
	// hint names no attempt or the listener has connected.
	Stray func(attempt string)
	// Listener is called when the listener has connected, and when it was lost, could not connect,
	// or is none, with the reason; nil: nobody is told.
	Listener func(up bool, err error)
	// Reclaimed is called after the lock of an expired holder was taken.
	Reclaimed func(name string, holder driver.Holder)
}

// Result is how a wait ended.
type Result struct {
	Granted bool // false: the attempt is in no queue any more and holds nothing
	Grant   driver.Grant
	Asked   time.Duration // by the hub's clock, before the statement that returned the grant was sent
}

// Waiter is one waiting attempt.
type Waiter struct {
	Name    string
	Attempt string

	answer  func(Result) // is called once, with nothing locked
	queued  bool         // the database has confirmed the place in the queue
	watcher *Watcher     // not nil: it waits for news only
}

// answer is the result of a waiter that is not told yet.
type answer struct {
	waiter *Waiter
	result Result
}

// Hub has the waiters of one session.
type Hub struct {
	backend Backend
	session string
	config  Config
	ctx     context.Context
	done    sync.WaitGroup
	woken   chan struct{} // a name is due
	tried   chan struct{} // closed when the first listener has connected, or failed
	once    sync.Once     // closes tried

	unanswered int // looks that have failed in a row; of the loop's goroutine

	mu        sync.Mutex // protects what follows
	started   bool
	listening bool
	deaf      bool // no listener is connected, and the latest try has failed or takes long
	watchers  int
	waiters   map[string]*Waiter // by attempt
	names     map[string]*awaited
	answers   []answer // that unlock gives
}

// awaited is a name that somebody waits for.
type awaited struct {
	waiters int           // with those that wait for news only
	due     time.Duration // when it is to be looked at; 0: a hint came; never: no waiter has joined the queue yet
	wait    time.Duration // how long before due that was decided
	seen    bool          // state is known
	// refusals is how many takeovers have failed in a row.
	refusals int
	state    driver.State  // as last seen
	moved    time.Duration // when it was first seen so, or began to be waited for
}

const never = time.Duration(math.MaxInt64)

// lookIn schedules the next look.
func (n *awaited) lookIn(wait, now time.Duration) { n.due, n.wait = now+wait, wait }

// pollAfter is how long after a look the next one is due while nothing listens.
func (n *awaited) pollAfter(now time.Duration) time.Duration {
	return min(max((now-n.moved)/stillness, fastestPoll), slowestPoll)
}

// saw notes a state.
func (n *awaited) saw(state driver.State, now time.Duration) {
	was, is := n.state, state
	if !n.seen || was.Holder.Grant.Token != is.Holder.Grant.Token || was.Used != is.Used || was.Waiters != is.Waiters {
		n.moved = now
	}
	n.seen, n.state = true, state
}

// New makes the hub of a session, which ends with ctx. Nothing runs before the first waiter, or
// Listen.
func New(ctx context.Context, backend Backend, session string, config Config) *Hub {
	return &Hub{
		backend: backend, session: session, config: config, ctx: ctx, woken: make(chan struct{}, 1),
		tried:   make(chan struct{}),
		waiters: map[string]*Waiter{}, names: map[string]*awaited{},
	}
}

// Ready starts the listener, and returns when the first one has connected or failed, and when ctx
// ends. A session that joined a queue before that would be deaf when its turn comes: the name would
// stand still until it looks, and the connect is what keeps it from looking.
func (h *Hub) Ready(ctx context.Context) {
	h.Listen()
	limit := time.NewTimer(readyLimit)
	defer limit.Stop()
	select {
	case <-h.tried:
	case <-limit.C:
		h.mu.Lock()
		h.deaf = !h.listening
		h.mu.Unlock()
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
}

// Add registers an attempt, and calls answer once with the end of its wait. It MUST be called
// before the request is sent: a grant may come before the request returns.
func (h *Hub) Add(name, attempt string, answer func(Result)) *Waiter {
	w := &Waiter{Name: name, Attempt: attempt, answer: answer}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[w.Attempt] = w
	if h.names[name] == nil {
		h.names[name] = &awaited{due: never}
	}
	h.names[name].waiters++
	return w
}

// Queued notes that the attempt is in the queue. From now on an attempt that is neither queued nor
// granted is gone.
func (h *Hub) Queued(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.queued = true
	h.expect(w)
}

// Listen starts the listener without a waiter, so that holders hear of Ask and Break.
func (h *Hub) Listen() {
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

// expect schedules the first look for a waiter or a watcher. MUST be called with mu locked.
func (h *Hub) expect(w *Waiter) {
	if h.ctx.Err() != nil || h.waiters[w.Attempt] != w { // over, or answered already
		return
	}
	h.start()
	if n := h.names[w.Name]; n.due == never {
		n.moved = h.config.Clock.Now()
		n.lookIn(firstLook, n.moved)
		if h.deaf {
			n.lookIn(fastestPoll, n.moved)
		}
		h.wake()
	}
}

// Remove forgets a waiter. An answer may come at the same time.
func (h *Hub) Remove(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters[w.Attempt] == w {
		h.forget(w)
	}
}

// State returns the last known state of a name that has a waiter here.
func (h *Hub) State(name string) (driver.State, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.names[name]; n != nil {
		return n.state, n.seen
	}
	return driver.State{}, false
}

// Deliver answers the waiters of this hub that a statement of this process granted a lock to,
// without a look at the database. asked is the clock before that statement was sent.
func (h *Hub) Deliver(next []driver.Handoff, asked time.Duration) {
	h.mu.Lock()
	defer h.unlock()
	for _, n := range next {
		if n.Session == h.session {
			h.grant(n.Attempt, n.Grant, asked)
		}
	}
}

// grant answers the waiter of an attempt that was granted its lock. MUST be called with mu locked.
func (h *Hub) grant(attempt string, grant driver.Grant, asked time.Duration) {
	if w := h.waiters[attempt]; w != nil {
		h.answer(w, Result{Granted: true, Grant: grant, Asked: asked})
	}
}

// Empty reports whether nobody waits here.
func (h *Hub) Empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiters) == 0
}

// Listening reports whether a listener is connected.
func (h *Hub) Listening() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listening
}

// Recheck schedules a look at a name now, after a statement with an unknown outcome.
func (h *Hub) Recheck(name string) {
	h.mu.Lock()
	if n := h.names[name]; n != nil {
		n.due = 0
	}
	h.mu.Unlock()
	h.wake()
}

// Wait returns when no goroutine of the hub runs any more. Its context must have ended.
func (h *Hub) Wait() {
	h.mu.Lock()
	started := h.started // a later caller sees that the context has ended, and starts nothing
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
	n := h.names[w.Name]
	if n.waiters--; n.waiters == 0 {
		delete(h.names, w.Name)
	}
}

// answer ends a wait. MUST be called with mu locked, which unlock MUST unlock.
func (h *Hub) answer(w *Waiter, r Result) {
	h.forget(w)
	h.answers = append(h.answers, answer{w, r})
}

// unlock unlocks mu, and then gives the answers.
func (h *Hub) unlock() {
	answers := h.answers
	h.answers = nil
	h.mu.Unlock()
	for _, a := range answers {
		a.waiter.answer(a.result)
	}
}

func (h *Hub) wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// listen keeps a listener connected for as long as the session lives. Whatever the reason was that
// it failed, it tries again, at growing intervals: a server that was slow once is no pooler.
func (h *Hub) listen() {
	var pause time.Duration
	for h.ctx.Err() == nil {
		up := false
		err := h.backend.Listen(h.ctx, func() {
			pause, up = 0, true
			h.setListening(true)
			h.once.Do(func() { close(h.tried) })
			h.config.Hearing.Worked("session", h.session)
			h.listens()
			h.tell(true, nil)
		}, h.heard)
		h.setListening(false)
		h.once.Do(func() { close(h.tried) })
		if h.ctx.Err() != nil {
			if up {
				h.tell(false, context.Cause(h.ctx))
			}
			return
		}
		h.tell(false, err)
		if errors.Is(err, driver.ErrUnsupported) {
			h.polls(err)
			pause = min(max(2*pause, relistenMax), relistenRarely)
		} else {
			h.config.Hearing.Failed(err, "session", h.session)
			pause = min(max(2*pause, relistenMin), relistenMax)
		}
		timer := h.config.Clock.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-h.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (h *Hub) tell(up bool, err error) {
	if h.config.Listener != nil {
		h.config.Listener(up, err)
	}
}

// polls says why waiters are polled for: once for all hubs of a client, to nobody who could not
// change it, and as a warning where the application had asked to listen.
func (h *Hub) polls(because error) {
	level := slog.LevelInfo
	switch {
	case errors.Is(because, driver.ErrCannotListen):
		level = slog.LevelDebug
	case errors.Is(because, driver.ErrDeaf):
		level = slog.LevelWarn
	}
	if told := h.config.Told; told == nil || told.CompareAndSwap(false, true) {
		h.config.Log.Log(h.ctx, level, "dblock: polling for grants", "session", h.session, "at least every",
			slowestPoll, "because", because)
	}
}

// listens says that waiters are not polled for any more, where polls has said that they are.
func (h *Hub) listens() {
	if told := h.config.Told; told != nil && told.CompareAndSwap(true, false) {
		h.config.Log.Info("dblock: listening for grants, polling no more", "session", h.session)
	}
}

func (h *Hub) setListening(listening bool) {
	h.mu.Lock()
	h.listening, h.deaf = listening, !listening
	for _, n := range h.names {
		n.due = 0 // earlier hints were missed
	}
	h.mu.Unlock()
	if listening && h.config.Stray != nil {
		h.config.Stray("")
	}
	h.wake()
}

// heard takes a hint: one attempt was granted, or some attempt was. A hint with the grant in it is
// the answer, because the commit that made the grant sent it.
func (h *Hub) heard(hint driver.Hint) {
	h.mu.Lock()
	w := h.waiters[hint.Attempt]
	switch {
	case w != nil && w.watcher == nil && hint.Grant.Token != 0 && hint.Grant.Lease == 0:
		h.grant(hint.Attempt, hint.Grant, h.config.Clock.Now())
	case w != nil:
		h.names[w.Name].due = 0
	case hint.Attempt == "":
		for _, n := range h.names {
			n.due = 0
		}
		for _, w := range h.waiters {
			w.notify(true)
		}
	}
	w.notify(true)
	h.unlock()
	if w == nil && h.config.Stray != nil {
		h.config.Stray(hint.Attempt)
	}
	h.wake()
}
