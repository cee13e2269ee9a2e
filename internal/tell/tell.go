// Package tell calls code of the application's: records go to its logger, events to its observer.
// The application's code may be slow, or block for ever: a pipe without a reader, a collector
// behind a failed network. So no other package calls it. A Queue accepts calls at once and under
// any mutex, and one goroutine makes them in order. The goroutine starts with the first call, and
// ends when no call is left. Calls that do not fit are left out, and the queue reports their
// number.
package tell

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// most limits the calls that wait, beside as many that are being made.
	most = 1000
	// flushTimeout bounds Flush: a program that ends keeps its last lines, and ends even if its
	// logger blocks.
	flushTimeout = time.Second
)

// Queue makes calls in order. It is safe for concurrent use. A nil Queue makes none.
type Queue struct {
	leftOut func(n int) // reports how many calls were left out

	mu      sync.Mutex // protects the fields below
	waiting []func()
	lost    int           // the number of calls that were left out after those that wait
	idle    chan struct{} // closed when the goroutine ends; nil: there is no goroutine
}

// New makes a queue. In the order of its calls, it calls leftOut with the number of those that did
// not fit.
func New(leftOut func(n int)) *Queue { return &Queue{leftOut: leftOut} }

// Calls makes a queue for calls of a function of the application's. It logs how many did not fit.
func Calls(log *slog.Logger, of string) *Queue {
	return New(func(n int) {
		log.Warn("dblock: calls of "+of+" were left out: it was too slow for them", "calls", n)
	})
}

// Add queues a call of deliver, and returns at once.
func (q *Queue) Add(deliver func()) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= most {
		q.lost++
		return
	}
	q.waiting = append(q.waiting, deliver)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.drain(nil)
	}
}

// drain makes calls, and those that are queued meanwhile. A call may end the goroutine that makes
// it, as testing.T.FailNow does: another goroutine then goes on with the next call.
func (q *Queue) drain(calls []func()) {
	finished := false
	defer func() {
		if !finished {
			go q.drain(calls)
		}
	}()
	for {
		for len(calls) > 0 {
			call := calls[0]
			calls = calls[1:]
			call()
		}
		if calls = q.next(); calls == nil {
			finished = true
			return
		}
	}
}

// next returns the calls that wait. Without any it returns nil, and the goroutine MUST end.
func (q *Queue) next() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, lost := q.waiting, q.lost
	q.waiting, q.lost = nil, 0
	if lost > 0 {
		calls = append(calls, func() { q.leftOut(lost) })
	}
	if calls == nil {
		close(q.idle)
		q.idle = nil
	}
	return calls
}

// Flush waits until all calls were made, for a second at most.
func Flush(queues ...*Queue) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for _, q := range queues {
		q.flush(ctx)
	}
}

func (q *Queue) flush(ctx context.Context) {
	if q == nil {
		return
	}
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
