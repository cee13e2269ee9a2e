package wait

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// loop looks at names when they are due.
func (h *Hub) loop() {
	for {
		names, pause := h.next()
		if len(names) > 0 {
			h.look(names)
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-h.ctx.Done():
			timer.Stop()
			return
		case <-h.stir:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// next returns the names that are due, or how long none will be. When one is due for want of news,
// those that will be soon go with it: one statement serves them all.
func (h *Hub) next() (names []string, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.config.Clock()
	pause = h.config.Safety
	overdue := false
	for name := range h.names {
		due, known := h.due[name]
		if !known {
			continue // its first waiter is not in the queue yet
		}
		pause = min(pause, due-now)
		switch {
		case due == 0:
			names = append(names, name)
		case due <= now:
			overdue = true
		}
	}
	if overdue {
		names = names[:0]
		for name, due := range h.due {
			if due <= now+h.config.Safety/4 {
				names = append(names, name)
			}
		}
	}
	if h.ctx.Err() != nil {
		return nil, 0
	}
	return names, pause
}

// look reads the state of names, answers those who got them or lost their place, and takes from
// holders that are over their time.
func (h *Hub) look(names []string) {
	ctx, cancel := context.WithTimeout(h.ctx, h.config.Limit)
	defer cancel()
	before := h.ask(names)
	asked := h.config.Clock()
	states, err := h.backend.Look(ctx, h.session, names)
	if err != nil {
		if h.ctx.Err() == nil {
			h.config.Log.Warn("dblock: looking for grants failed", "session", h.session, "error", err)
		}
		h.put(names, pollInterval+rand.N(pollInterval))
		return
	}
	for _, state := range states {
		overdue := h.settle(state, before[state.Name], asked)
		delete(before, state.Name)
		for _, holder := range overdue {
			h.reclaim(ctx, state.Name, holder)
		}
	}
	for name, waiters := range before { // no row at all
		h.settle(driver.State{Name: name}, waiters, asked)
	}
}

// ask returns the waiters, by name, that were in the queue before the question was sent: only of
// these does an answer without them mean that they are gone.
func (h *Hub) ask(names []string) (queued map[string][]*Waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	queued = make(map[string][]*Waiter, len(names))
	for _, name := range names {
		if h.names[name] > 0 {
			h.due[name] = h.config.Clock() + h.config.Safety // until the answer says when
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

// settle answers what a state answers to those who were queued before, and returns what in it is to
// be taken away from the dead, or handed on for want of anybody who did.
func (h *Hub) settle(state driver.State, before []*Waiter, asked time.Duration) (overdue []driver.Holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, own := range state.Granted {
		if w := h.waiters[own.Attempt]; w != nil {
			h.answer(w, Result{Granted: true, Grant: own.Grant, Asked: asked})
		}
	}
	queued := make(map[string]bool, len(state.Queued))
	for _, attempt := range state.Queued {
		queued[attempt] = true
	}
	for _, w := range before {
		if h.waiters[w.Attempt] == w && !queued[w.Attempt] {
			h.answer(w, Result{})
		}
	}
	if h.names[state.Name] == 0 {
		return nil
	}
	if h.watchers > 0 {
		for _, w := range h.waiters {
			if w.Name == state.Name {
				w.tell(false)
			}
		}
	}
	h.states[state.Name] = state
	wait := h.config.Safety
	if !h.listening {
		wait = pollInterval
	}
	for _, obstacle := range []driver.Holder{state.Holder, state.Head} {
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
	if state.Ready { // released with a transaction of the application's, or after a rest: whoever notices hands it on
		overdue = append(overdue, driver.Holder{})
		wait = min(wait, slack)
	}
	if h.due[state.Name] != 0 { // 0: there was another hint meanwhile
		h.due[state.Name] = h.config.Clock() + wait
	}
	return overdue
}

// reclaim takes a name from a holder whose time is over. Whoever comes first does it, for all.
func (h *Hub) reclaim(ctx context.Context, name string, holder driver.Holder) {
	asked := h.config.Clock()
	next, taken, err := h.backend.Reclaim(ctx, h.session, name, holder)
	switch {
	case err == nil && taken:
		h.Hand(next, asked)
		if h.config.Reclaimed != nil && holder.Grant.Token != 0 {
			h.config.Reclaimed(name, holder)
		}
		if holder.Units > 0 || holder.Grant.Token == 0 { // there may be more of its kind
			h.put([]string{name}, 0)
		} else {
			h.put([]string{name}, firstLook)
		}
	case err == nil: // alive after all, or another was faster
		h.put([]string{name}, slack+rand.N(firstLook))
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		h.put([]string{name}, busyRetry/2+rand.N(busyRetry))
	case h.ctx.Err() == nil:
		h.config.Log.Warn("dblock: taking over failed", "name", name, "holder", holder.Session, "error", err)
		h.put([]string{name}, busyRetry+rand.N(busyRetry))
	}
}

// put sets when names are to be looked at next, unless that is at once.
func (h *Hub) put(names []string, in time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.config.Clock() + in
	for _, name := range names {
		if due, known := h.due[name]; known && due != 0 && h.names[name] > 0 {
			h.due[name] = at
		}
	}
}
