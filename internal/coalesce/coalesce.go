// Package coalesce lets the requests of many goroutines share statements. A request that is alone
// is sent at once, as a statement of its own. While all slots are taken, requests wait here; when a
// slot is free they are sent together. So the number of statements in flight stays small, and the
// batches grow with the load.
//
// Requests may be in lanes, each with slots of its own. Those of a lane are sent in the order in
// which they came. With one slot, none of them overtakes another, unless a statement is slow.
//
// A batch belongs to all its callers. The end of one caller's context does not end the batch: that
// caller leaves, and learns the outcome of its request once the batch is answered.
package coalesce

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	slots = 2 // the default of Config.Slots
	// slow is the time after which a statement gives up its slot: a statement that waits for a
	// server or a row must not stop a client.
	slow = 100 * time.Millisecond
)

// Config configures a Coalescer.
type Config[Q, A any] struct {
	// Send sends requests as one statement and returns an answer for each, or an error for all. It
	// bounds itself.
	Send func(requests []Q) ([]A, error)
	// Refused reports whether an error of Send may be due to a single request, and says that
	// nothing was done. The requests are then sent again in halves, so that only requests that are
	// refused alone get the error. nil: never.
	Refused func(err error) bool
	// Lane returns the lane of a request. nil: there is one lane.
	Lane func(request Q) string
	// Key returns the key of a request: requests with one key never share a batch. nil: all may.
	Key func(request Q) string
	// Most limits the requests of a batch.
	Most int
	// Slots is the number of statements of a lane in flight from which on requests wait for each
	// other.
	// Default: 2, of which one is prepared while the other waits for the disk.
	Slots int
	// Go runs a function in a goroutine. It is called within a call of Do.
	Go func(func())
}

// Coalescer collects requests. Use New: its zero value is not usable.
type Coalescer[Q, A any] struct {
	config Config[Q, A]

	mu    sync.Mutex             // protects the lanes
	lanes map[string]*lane[Q, A] // those with a statement in flight, or a request that is about to be sent
}

// lane has the requests that wait for each other's statements.
type lane[Q, A any] struct {
	name    string
	taken   int // the number of slots in use
	waiting []*member[Q, A]
}

// member is a request that waits for a batch, or for its answer.
type member[Q, A any] struct {
	request  Q
	answered chan struct{} // closed when answer and err are set
	answer   A
	err      error
}

// New makes a coalescer. It starts nothing.
func New[Q, A any](config Config[Q, A]) *Coalescer[Q, A] {
	config.Slots = cmp.Or(config.Slots, slots)
	return &Coalescer[Q, A]{config: config, lanes: map[string]*lane[Q, A]{}}
}

// Left is the error of Do where the context ended before the batch was answered.
type Left struct {
	Cause    error           // of the context's end
	Answered <-chan struct{} // closed when the batch is answered; nil: the request was never sent
}

func (l *Left) Error() string { return l.Cause.Error() }

// Unwrap returns the cause.
func (l *Left) Unwrap() error { return l.Cause }

// Busy reports whether the lane of a request has statements in flight.
func (c *Coalescer[Q, A]) Busy(request Q) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lanes[c.name(request)] != nil
}

// Alone reports whether the caller is to send its request itself, at once. It then has a slot until
// it calls done.
func (c *Coalescer[Q, A]) Alone(request Q) (done func(), alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lane(request)
	if l.taken >= c.config.Slots {
		return nil, false
	}
	_, done = c.slot(l)
	return done, true
}

// Do sends a request together with others, as soon as there is a slot. Its errors are those of
// Send, and *Left.
func (c *Coalescer[Q, A]) Do(ctx context.Context, request Q) (A, error) {
	m := &member[Q, A]{request: request, answered: make(chan struct{})}
	c.mu.Lock()
	l := c.lane(request)
	l.waiting = append(l.waiting, m)
	if l.taken < c.config.Slots { // a slot was freed since Alone
		c.send(l)
	}
	c.mu.Unlock()
	select {
	case <-m.answered:
		return m.answer, m.err
	case <-ctx.Done():
	}
	var none A
	if c.withdraw(l, m) {
		return none, &Left{Cause: context.Cause(ctx)}
	}
	return none, &Left{Cause: context.Cause(ctx), Answered: m.answered}
}

// withdraw removes a request that was not sent yet. It returns false if the request was sent.
func (c *Coalescer[Q, A]) withdraw(l *lane[Q, A], m *member[Q, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(l.waiting, m)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

func (c *Coalescer[Q, A]) name(request Q) string {
	if c.config.Lane == nil {
		return ""
	}
	return c.config.Lane(request)
}

// lane returns the lane of a request that takes a slot, or waits for one. MUST be called with mu
// locked.
func (c *Coalescer[Q, A]) lane(request Q) *lane[Q, A] {
	name := c.name(request)
	l := c.lanes[name]
	if l == nil {
		l = &lane[Q, A]{name: name}
		c.lanes[name] = l
	}
	return l
}

// slot takes a slot of a lane, which is freed by done, or once a statement takes slow: late is to
// be reset before each further one. The waiting requests are sent then. MUST be called with mu
// locked.
func (c *Coalescer[Q, A]) slot(l *lane[Q, A]) (late *time.Timer, done func()) {
	l.taken++
	free := sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch l.taken--; {
		case len(l.waiting) > 0:
			c.send(l)
		case l.taken == 0:
			delete(c.lanes, l.name)
		}
	})
	late = time.AfterFunc(slow, free)
	return late, func() { late.Stop(); free() }
}

// send takes a slot of a lane, and sends the waiting requests, up to a batch. MUST be called with
// mu locked.
func (c *Coalescer[Q, A]) send(l *lane[Q, A]) {
	late, done := c.slot(l)
	batch := c.next(l)
	c.config.Go(func() {
		defer done()
		c.answer(batch, late)
	})
}

// answer runs a batch, and its halves where it is refused.
func (c *Coalescer[Q, A]) answer(batch []*member[Q, A], late *time.Timer) {
	late.Reset(slow)
	requests := make([]Q, len(batch))
	for i, m := range batch {
		requests[i] = m.request
	}
	answers, err := c.config.Send(requests)
	if err != nil && len(batch) > 1 && c.config.Refused != nil && c.config.Refused(err) {
		c.answer(batch[:len(batch)/2], late)
		c.answer(batch[len(batch)/2:], late)
		return
	}
	for i, m := range batch {
		if m.err = err; err == nil {
			m.answer = answers[i]
		}
		close(m.answered)
	}
}

// next removes the next batch from the waiting requests, in their order. MUST be called with mu
// locked.
func (c *Coalescer[Q, A]) next(l *lane[Q, A]) (batch []*member[Q, A]) {
	keys := map[string]bool{}
	var rest []*member[Q, A]
	for i, m := range l.waiting {
		if len(batch) == c.config.Most {
			rest = append(rest, l.waiting[i:]...)
			break
		}
		if c.config.Key != nil {
			key := c.config.Key(m.request)
			if keys[key] {
				rest = append(rest, m)
				continue
			}
			keys[key] = true
		}
		batch = append(batch, m)
	}
	l.waiting = rest
	return batch
}
