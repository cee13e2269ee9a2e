// Package coalesce lets the requests of many goroutines share statements. A request that is alone
// is sent at once, as a statement of its own. While all slots are taken, requests wait here; when a
// slot is free they are sent together. So the number of statements in flight stays small, and the
// batches grow with the load.
//
// A batch belongs to all its callers. The end of one caller's context does not end the batch: that
// caller leaves, and learns the outcome of its request once the batch is answered.
package coalesce

import (
	"cmp"
	"context"
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
	// Run sends requests as one statement and returns an answer for each, or an error for all. It
	// bounds itself.
	Run func(requests []Q) ([]A, error)
	// Refused reports whether an error of Run may be due to a single request, and says that nothing
	// was done. The requests are then sent again in halves, so that only requests that are refused
	// alone get the error. nil: never.
	Refused func(err error) bool
	// Key returns the key of a request: requests with one key never share a batch. nil: all may.
	Key func(request Q) string
	// Most limits the requests of a batch.
	Most int
	// Slots is the number of statements in flight from which on requests wait for each other.
	// Default: 2, of which one is prepared while the other waits for the disk.
	Slots int
	// Go runs a function in a goroutine. It is called within a call of Do.
	Go func(func())
}

// Coalescer collects requests. Use New: its zero value is not usable.
type Coalescer[Q, A any] struct {
	config Config[Q, A]

	mu      sync.Mutex // protects the fields below
	taken   int        // the number of slots in use
	waiting []*member[Q, A]
	latest  <-chan struct{} // the answered channel of the latest request
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
	return &Coalescer[Q, A]{config: config}
}

// Left is the error of Do where the context ended before the batch was answered.
type Left struct {
	Cause    error           // of the context's end
	Answered <-chan struct{} // closed when the batch is answered; nil: the request was never sent
}

func (l *Left) Error() string { return l.Cause.Error() }

// Unwrap returns the cause.
func (l *Left) Unwrap() error { return l.Cause }

// Alone reports whether the caller is to send its request itself, at once. It then has a slot until
// it calls done.
func (c *Coalescer[Q, A]) Alone() (done func(), alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken >= c.config.Slots {
		return nil, false
	}
	return c.slot(), true
}

// Do sends a request together with others, as soon as there is a slot. Its errors are those of Run,
// and *Left.
func (c *Coalescer[Q, A]) Do(ctx context.Context, request Q) (A, error) {
	m := &member[Q, A]{request: request, answered: make(chan struct{})}
	c.mu.Lock()
	c.waiting, c.latest = append(c.waiting, m), m.answered
	if c.taken < c.config.Slots { // a slot was freed since Alone
		c.send(c.slot())
	}
	c.mu.Unlock()
	select {
	case <-m.answered:
		return m.answer, m.err
	case <-ctx.Done():
	}
	var none A
	if c.withdraw(m) {
		return none, &Left{Cause: context.Cause(ctx)}
	}
	return none, &Left{Cause: context.Cause(ctx), Answered: m.answered}
}

// Drain waits until all requests so far are answered, or ctx ends.
func (c *Coalescer[Q, A]) Drain(ctx context.Context) {
	c.mu.Lock()
	latest := c.latest
	c.mu.Unlock()
	if latest == nil {
		return
	}
	select {
	case <-latest:
	case <-ctx.Done():
	}
}

// withdraw removes a request that was not sent yet. It returns false if the request was sent.
func (c *Coalescer[Q, A]) withdraw(m *member[Q, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.waiting {
		if other == m {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			close(m.answered)
			return true
		}
	}
	return false
}

// slot takes a slot, which is freed by done, or after slow. The waiting requests are sent then.
// MUST be called with mu locked.
func (c *Coalescer[Q, A]) slot() (done func()) {
	c.taken++
	free := sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.taken--
		if len(c.waiting) > 0 {
			c.send(c.slot())
		}
	})
	late := time.AfterFunc(slow, free)
	return func() { late.Stop(); free() }
}

// send sends the waiting requests, up to a batch. MUST be called with mu locked.
func (c *Coalescer[Q, A]) send(done func()) {
	batch := c.next()
	c.config.Go(func() {
		defer done()
		c.answer(batch)
	})
}

// answer runs a batch, and its halves where it is refused.
func (c *Coalescer[Q, A]) answer(batch []*member[Q, A]) {
	requests := make([]Q, len(batch))
	for i, m := range batch {
		requests[i] = m.request
	}
	answers, err := c.config.Run(requests)
	if err != nil && len(batch) > 1 && c.config.Refused != nil && c.config.Refused(err) {
		c.answer(batch[:len(batch)/2])
		c.answer(batch[len(batch)/2:])
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
func (c *Coalescer[Q, A]) next() (batch []*member[Q, A]) {
	keys := map[string]bool{}
	var rest []*member[Q, A]
	for _, m := range c.waiting {
		key := ""
		if c.config.Key != nil {
			key = c.config.Key(m.request)
		}
		if len(batch) == c.config.Most || c.config.Key != nil && keys[key] {
			rest = append(rest, m)
			continue
		}
		keys[key] = true
		batch = append(batch, m)
	}
	c.waiting = rest
	return batch
}
