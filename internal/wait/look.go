package wait

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// loop looks at names when they are due.
func (h *Hub) loop() {
	timer := h.config.Clock.NewTimer(h.config.Safety)
	defer timer.Stop()
	for {
		h.sweep()
		names, pause := h.next()
		if len(names) > 0 {
			h.look(names)
			continue
		}
		timer.Reset(pause)
		select {
		case <-h.ctx.Done():
			return
		case <-h.woken:
		case <-timer.C:
		}
	}
}

// sweep sweeps this host from time to time while anybody waits, beside the looks at names: the
// locks of a dead session may be many.
func (h *Hub) sweep() {
	now := h.config.Clock.Now()
	if !h.config.Sweeps || now < h.nextSweep || h.Empty() {
		return
	}
	h.nextSweep = now + sweepPause
	h.done.Go(func() {
		if h.backend.Sweep(h.ctx) {
			h.mu.Lock()
			h.recheckAll()
			h.mu.Unlock()
			h.wake()
		}
	})
}

// next returns the names that are due, or the time until one is. If a name is due without a hint,
// next adds the names that have waited for half of their time to its statement.
func (h *Hub) next() (names []string, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.config.Clock.Now()
	pause = h.config.Safety
	if h.config.Sweeps && len(h.names) > 0 {
		pause = min(pause, sweepPause)
	}
	overdue := false
	for name, n := range h.names {
		pause = min(pause, n.due-now)
		switch {
		case n.due == 0:
			names = append(names, name)
		case n.due <= now:
			overdue = true
		}
	}
	if overdue {
		names = names[:0]
		for name, n := range h.names {
			if n.due <= now+n.wait/2 {
				names = append(names, name)
			}
		}
	}
	if h.ctx.Err() != nil {
		return nil, 0
	}
	return names, pause
}

// look reads the state of names, answers the waiters that were granted the lock or lost their
// place, and takes locks from expired holders.
func (h *Hub) look(names []string) {
	ctx, cancel := context.WithTimeout(h.ctx, h.config.Limit)
	defer cancel()
	before := h.ask(names)
	asked := h.config.Clock.Now()
	states, err := h.backend.Read(ctx, h.session, names, 0)
	if err != nil {
		if h.ctx.Err() == nil {
			h.config.Looking.Failed(err, "session", h.session)
		}
		h.unanswered++
		h.schedule(names, backoff.Pause(h.unanswered, 2*slowestPoll, h.config.Safety))
		return
	}
	h.unanswered = 0
	h.config.Looking.Worked("session", h.session)
	for _, state := range states {
		overdue := h.answerFrom(state, before[state.Name], asked)
		delete(before, state.Name)
		if uncounted(state) {
			h.recount(ctx, state.Name)
		}
		if state.Sharing == 0 && state.Holder.Session == h.session {
			h.config.Client.Own(state.Holder.Attempt)
		}
		for _, holder := range overdue {
			h.reclaim(ctx, state.Name, holder)
		}
	}
	for name, waiters := range before { // names without a row
		h.answerFrom(driver.State{Name: name}, waiters, asked)
	}
}

// ask returns the waiters, by name, that were in the queue before the statement was sent. Only
// these are gone if the answer does not have them.
func (h *Hub) ask(names []string) (queued map[string][]*Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queued = make(map[string][]*Waiter, len(names))
	for _, name := range names {
		if n := h.names[name]; n != nil {
			n.lookIn(h.config.Safety, h.config.Clock.Now()) // until the answer schedules the next look
			queued[name] = nil
		}
	}
	for _, w := range h.waiters {
		if list, asked := queued[w.Name]; asked && w.queued {
			queued[w.Name] = append(list, w)
		}
	}
	return queued
}

// answerFrom answers waiters from a state. before are the waiters that were queued before the
// statement was sent. It returns the expired holders from which the name is to be taken; the zero
// Holder if the name only has to be handed over.
func (h *Hub) answerFrom(state driver.State, before []*Waiter, asked time.Duration) (overdue []protocol.Holder) {
	h.mu.Lock()
	defer h.unlock()
	for _, own := range state.Granted {
		h.grant(own.Attempt, own.Grant, asked)
	}
	there := make(map[string]bool, len(state.Queued)+len(state.Granted))
	for _, attempt := range state.Queued {
		there[attempt] = true
	}
	for _, own := range state.Granted {
		there[own.Attempt] = true
	}
	for _, w := range before {
		if h.waiters[w.Attempt] == w && !there[w.Attempt] {
			h.answer(w, Result{})
		}
	}
	n, now := h.names[state.Name], h.config.Clock.Now()
	if n == nil {
		return nil
	}
	if h.watchers > 0 {
		for _, w := range h.waiters {
			if w.Name == state.Name {
				w.notify(false)
			}
		}
	}
	n.saw(state, asked, now)
	wait := h.config.Safety
	if h.deaf {
		wait = n.pollAfter(now)
	}
	for _, obstacle := range []protocol.Holder{state.Holder, state.Head} {
		if obstacle.Session == "" {
			continue
		}
		wait = min(wait, max(obstacle.Left, 0)+slack)
		if obstacle.Left <= 0 {
			overdue = append(overdue, obstacle)
		}
	}
	if state.Waiters > 0 && state.Rest > 0 {
		wait = min(wait, state.Rest+slack)
	}
	// The name was released in a transaction of the application's, or its MinHold has elapsed: the
	// first session that notices hands it over.
	if state.Ready {
		overdue = append(overdue, protocol.Holder{})
		wait = min(wait, slack)
	}
	if n.due != 0 { // 0: another hint came meanwhile
		n.lookIn(wait, now)
	}
	return overdue
}

// uncounted reports whether the row of a name counts fewer waiters than this session has in its
// queue: somebody has deleted the row, and another client has made it anew. Nobody would be served.
func uncounted(state driver.State) bool { return len(state.Queued) > state.Waiters }

// recount corrects the row of a name. After an error the next look tries again.
func (h *Hub) recount(ctx context.Context, name string) {
	switch corrected, err := h.backend.Recount(ctx, name); {
	case corrected.Done():
		h.config.Taking.Worked()
		h.refusals(name, -1)
		h.schedule([]string{name}, firstLook)
	case err == nil: // another session has corrected it
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		h.schedule([]string{name}, busyRetry/2+rand.N(busyRetry))
	case h.ctx.Err() == nil:
		h.config.Taking.Failed(err, "name", name)
		h.schedule([]string{name}, backoff.Pause(h.refusals(name, 1), 2*busyRetry, h.config.Safety))
	}
}

// reclaim takes a name from an expired holder. One session that does so suffices for all.
func (h *Hub) reclaim(ctx context.Context, name string, holder protocol.Holder) {
	taken, err := h.backend.TakeOver(ctx, name, holder)
	switch {
	case taken.Done():
		h.config.Taking.Worked()
		h.refusals(name, -1)
		if holder.Units > 0 || holder.Grant.Token == 0 { // there may be more such holders
			h.schedule([]string{name}, 0)
		} else {
			h.schedule([]string{name}, firstLook)
		}
	case err == nil: // the holder lives after all, or another session has taken the name
		h.schedule([]string{name}, slack+rand.N(firstLook))
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		h.schedule([]string{name}, busyRetry/2+rand.N(busyRetry))
	case h.ctx.Err() == nil:
		h.config.Taking.Failed(err, "name", name, "holder", holder.Session)
		h.schedule([]string{name}, backoff.Pause(h.refusals(name, 1), 2*busyRetry, h.config.Safety))
	}
}

// refusals adds more to the count of failed takeovers of a name, or resets it if more is negative.
func (h *Hub) refusals(name string, more int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.names[name]
	switch {
	case n == nil:
		return 1
	case more < 0:
		n.refusals = 0
	default:
		n.refusals += more
	}
	return n.refusals
}

// schedule sets the next look at names, unless one is due now.
func (h *Hub) schedule(names []string, in time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		if n := h.names[name]; n != nil && n.due != 0 && n.due != never {
			n.lookIn(in, h.config.Clock.Now())
		}
	}
}
