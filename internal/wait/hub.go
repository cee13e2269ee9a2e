// Package wait lets any number of goroutines of one session wait for locks without a connection
// each. One listener receives hints of grants, and one loop reads the state of the names, for all
// of them.
//
// A hint without a grant only wakes the loop. The state that the loop reads from the database
// decides. The loop also reads without a hint: when a holder's lease should end, to notice a crash;
// when the listener has connected, because grants may have been made before; and at a slow interval
// all the time, or a fast one while no listener is connected.
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
	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// firstLook is the delay from the first waiter of a name to the first look at it. Most
	// hand-offs are faster.
	firstLook = 100 * time.Millisecond
	// fastestPoll and slowestPoll bound the interval of looks while no listener is connected.
	// Between them the interval is a fraction of the time since the name last changed: a name that
	// changes fast is read often, a name that is held for long is not.
	fastestPoll, slowestPoll = 5 * time.Millisecond, 100 * time.Millisecond
	stillness                = 8
	// busyRetry is the delay before a takeover is retried after a guarded transaction refused it.
	busyRetry = 200 * time.Millisecond
	// slack is the delay from the end of a lease to the look at its holder.
	slack = 5 * time.Millisecond
	// sweepPause is the time between two sweeps of this host while anybody waits.
	sweepPause = 100 * time.Millisecond
	// readyLimit bounds the wait for the first listener. After that time waiters poll.
	readyLimit = 500 * time.Millisecond
	// relistenMin and relistenMax bound the pause before a failed listener begins again.
	// relistenRarely bounds the pause where the engine cannot listen, which may change.
	relistenMin, relistenMax, relistenRarely = 100 * time.Millisecond, 5 * time.Second, 5 * time.Minute
)

// Backend is the part of an engine and of a session that the hub needs.
type Backend interface {
	// TakeOver takes a name from an expired holder; from none (the zero Holder) it hands the name
	// on. It answers the waiters of the session that got the name.
	TakeOver(ctx context.Context, name string, holder protocol.Holder) (protocol.Result, error)
	// Recount corrects the row of a name that does not count a waiter, and hands the name on.
	Recount(ctx context.Context, name string) (protocol.Result, error)
	Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error)
	// Sweep ends the sessions whose processes have ended on this host, and reports whether there
	// was one. Otherwise it sends no statement.
	Sweep(ctx context.Context) (buried bool)
	Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error
}

// Config is the same for all hubs of a client.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Hearing, Looking and Taking report the outages of the listener, of looks, and of takeovers.
	Hearing, Looking, Taking *outage.Report
	// Polling is set while a hub of the client has logged that it polls; nil: each hub logs it.
	Polling *atomic.Bool
	// Safety is the interval of looks without a hint.
	Safety time.Duration
	// Limit bounds each statement.
	Limit  time.Duration
	Sweeps bool // the loop calls Sweep while anybody waits
	Client Client
}

// Client is the client as its hubs call it.
type Client interface {
	// Stray is called with the attempt of each hint that has no waiter here, and with "" where the
	// hint names no attempt or the listener has connected.
	Stray(attempt string)
	// Own is called after each look at a name of which the session has the whole, with the attempt
	// that has it.
	Own(attempt string)
	// Listener is called when the listener has connected, and with the reason when it was lost,
	// could not connect, or is not supported.
	Listener(up bool, err error)
}

// Result is how a wait ended.
type Result struct {
	Granted bool // false: the attempt is in no queue any more and holds nothing
	Grant   protocol.Grant
	Asked   time.Duration // by the hub's clock, before the statement that returned the grant was sent
}

// Waiter is one waiting attempt.
type Waiter struct {
	Name    string
	Attempt string

	answer  func(Result) // is called once, with no mutex locked
	queued  bool         // the database has confirmed the place in the queue
	watcher *Watcher     // not nil: this is no waiter for the lock, but for news
}

// answer is the result of a waiter that was not called with it yet.
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

	unanswered int           // the number of looks in a row that have failed; of the loop's goroutine
	nextSweep  time.Duration // no sweep begins before this time; of the same goroutine

	mu        sync.Mutex // protects the fields below
	started   bool
	listening bool
	deaf      bool // no listener is connected, and the latest try has failed or takes long
	watchers  int
	waiters   map[string]*Waiter // by attempt
	names     map[string]*awaited
	answers   []answer // the answers that unlock gives
}

// awaited is a name that has waiters or watchers.
type awaited struct {
	waiters int           // watchers included
	due     time.Duration // when the next look is due; 0: now, after a hint; never: none is
	first   bool          // the first look was scheduled, for a waiter that has joined the queue
	wait    time.Duration // the time from that decision to due
	read    time.Duration // when the statement was sent that read state; unread: none was
	// refusals is the number of takeovers in a row that have failed.
	refusals int
	state    driver.State  // as last read
	moved    time.Duration // when this state was first read, or the wait began
}

const (
	never  = time.Duration(math.MaxInt64)
	unread = time.Duration(-1)
)

// lookIn schedules the next look.
func (n *awaited) lookIn(wait, now time.Duration) { n.due, n.wait = now+wait, wait }

// pollAfter returns the time from a look to the next one while no listener is connected.
func (n *awaited) pollAfter(now time.Duration) time.Duration {
	return min(max((now-n.moved)/stillness, fastestPoll), slowestPoll)
}

// saw records a state, which was asked for before.
func (n *awaited) saw(state driver.State, asked, now time.Duration) {
	was, is := n.state, state
	if n.read == unread || was.Holder.Grant.Token != is.Holder.Grant.Token || was.Used != is.Used ||
		was.Waiters != is.Waiters {
		n.moved = now
	}
	n.read, n.state = asked, state
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
// ends. It comes before the request: a session that joins a queue without a listener would notice
// its grant only with its next look, and the name would be idle until then.
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
		h.names[name] = &awaited{due: never, read: unread}
	}
	h.names[name].waiters++
	return w
}

// Queued records that the attempt is in the queue. From now on an attempt that is neither queued
// nor granted is gone.
func (h *Hub) Queued(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.queued = true
	h.expect(w)
}

// Listen starts the listener without a waiter, so that holders are notified of Ask and Break.
func (h *Hub) Listen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		h.start()
	}
}

// start starts the goroutines of the hub, once. MUST be called with mu locked.
func (h *Hub) start() {
	if !h.started {
		h.started = true
		h.done.Go(h.listen)
		h.done.Go(h.loop)
	}
}

// expect schedules the first look for a waiter or a watcher. MUST be called with mu locked.
func (h *Hub) expect(w *Waiter) {
	if h.ctx.Err() != nil || h.waiters[w.Attempt] != w { // the session has ended, or the waiter was answered already
		return
	}
	h.start()
	if n := h.names[w.Name]; !n.first {
		n.first, n.moved = true, h.config.Clock.Now()
		n.lookIn(firstLook, n.moved)
		if h.deaf {
			n.lookIn(fastestPoll, n.moved)
		}
		h.wake()
	}
}

// Remove removes a waiter. An answer may come at the same time.
func (h *Hub) Remove(w *Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiters[w.Attempt] == w {
		h.forget(w)
	}
}

// State returns the last known state of a name that has a waiter here, and when it was read, by the
// hub's clock; a negative time: it was not.
func (h *Hub) State(name string) (state driver.State, read time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.names[name]; n != nil {
		return n.state, n.read
	}
	return driver.State{}, unread
}

// Deliver answers the waiters of this hub to which a statement of this process granted a lock,
// without a look at the database. asked is the clock before that statement was sent.
func (h *Hub) Deliver(next []protocol.Handoff, asked time.Duration) {
	h.mu.Lock()
	defer h.unlock()
	for _, n := range next {
		if n.Session == h.session {
			h.grant(n.Attempt, n.Grant, asked)
		}
	}
}

// grant answers the waiter of an attempt that was granted its lock. MUST be called with mu locked.
func (h *Hub) grant(attempt string, grant protocol.Grant, asked time.Duration) {
	if w := h.waiters[attempt]; w != nil {
		h.answer(w, Result{Granted: true, Grant: grant, Asked: asked})
	}
}

// Empty reports whether the hub has no waiters.
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

// recheckAll schedules a look at all names now. MUST be called with mu locked.
func (h *Hub) recheckAll() {
	for _, n := range h.names {
		n.due = 0
	}
}

// hintAll wakes all watchers as a hint does. A look does not: it shows no event that was recorded
// while the name stayed as it was. MUST be called with mu locked.
func (h *Hub) hintAll() {
	for _, w := range h.waiters {
		w.notify(true)
	}
}

// Wait returns when no goroutine of the hub runs any more. Its context must have ended.
func (h *Hub) Wait() {
	h.mu.Lock()
	started := h.started // a later start finds that the context has ended
	h.mu.Unlock()
	if started {
		h.done.Wait()
	}
}

// forget removes a waiter. MUST be called with mu locked.
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

// listen keeps a listener connected for as long as the session lives. It retries after every
// failure, at growing intervals, even after ErrUnsupported: a server that was slow once may look
// like a pooler.
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
			h.config.Client.Listener(true, nil)
		}, h.heard)
		h.setListening(false)
		h.once.Do(func() { close(h.tried) })
		if h.ctx.Err() != nil {
			if up {
				h.config.Client.Listener(false, context.Cause(h.ctx))
			}
			return
		}
		h.config.Client.Listener(false, err)
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

// polls logs that waiters poll, and why: once for all hubs of a client. The level is Debug where no
// setting would help, and Warn where the application has asked to listen.
func (h *Hub) polls(because error) {
	level := slog.LevelInfo
	switch {
	case errors.Is(because, driver.ErrCannotListen):
		level = slog.LevelDebug
	case errors.Is(because, driver.ErrDeaf):
		level = slog.LevelWarn
	}
	if polling := h.config.Polling; polling == nil || polling.CompareAndSwap(false, true) {
		h.config.Log.Log(h.ctx, level, "dblock: polling for grants", "session", h.session, "at least every",
			slowestPoll, "because", because)
	}
}

// listens logs that waiters poll no more, if polls has logged that they do.
func (h *Hub) listens() {
	if polling := h.config.Polling; polling != nil && polling.CompareAndSwap(true, false) {
		h.config.Log.Info("dblock: listening for grants, polling no more", "session", h.session)
	}
}

func (h *Hub) setListening(listening bool) {
	h.mu.Lock()
	h.listening, h.deaf = listening, !listening
	h.recheckAll() // earlier hints were missed
	if listening {
		h.hintAll()
	}
	h.mu.Unlock()
	if listening {
		h.config.Client.Stray("")
	}
	h.wake()
}

// heard handles a hint: one attempt was granted, or some attempt was. A hint that contains the
// grant is the answer, because the commit that made the grant sent it.
func (h *Hub) heard(hint protocol.Hint) {
	h.mu.Lock()
	w := h.waiters[hint.Attempt]
	switch {
	case w != nil && w.watcher == nil && hint.Grant.Token != 0 && hint.Grant.Lease == 0:
		h.grant(hint.Attempt, hint.Grant, h.config.Clock.Now())
	case w != nil:
		h.names[w.Name].due = 0
	case hint.Attempt == "":
		h.recheckAll()
		h.hintAll()
	}
	w.notify(true)
	h.unlock()
	if w == nil {
		h.config.Client.Stray(hint.Attempt)
	}
	h.wake()
}
