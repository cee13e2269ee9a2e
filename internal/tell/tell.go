// Package tell delivers what the library has to say to code of the application's: records to its
// logger, calls to its observer. That code may be slow, or block for ever: a pipe that nobody
// reads, a collector behind the network that has just failed. So nothing of the library calls it.
// A Queue takes what is to be told, at once and under any mutex, and one goroutine delivers it in
// order. The goroutine starts when there is something to deliver, and ends when there is nothing
// more. What does not fit is left out, and the queue says how much that was.
package tell

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// most is how many deliveries wait at a time, beside as many that are being delivered.
	most = 1000
	// flushTimeout bounds Flush: a program that ends keeps its last lines, and ends although nobody
	// takes them.
	flushTimeout = time.Second
)

// Queue delivers in order. It is safe for concurrent use. A nil Queue delivers nothing.
type Queue struct {
	leftOut func(n int) // tells how many deliveries were left out

	mu      sync.Mutex // protects what follows
	waiting []func()
	lost    int           // deliveries that were left out since those that wait
	idle    chan struct{} // closed when the goroutine ends; nil: none runs
}

// New makes a queue. It calls leftOut, in the order of what it delivers, with the number of
// deliveries that did not fit.
func New(leftOut func(n int)) *Queue { return &Queue{leftOut: leftOut} }

// Calls makes a queue of calls of a function of the application's. The log says how many did not
// fit.
func Calls(log *slog.Logger, of string) *Queue {
	return New(func(n int) {
		log.Warn("dblock: calls of "+of+" were left out: it was too slow for them", "calls", n)
	})
}

// Add has deliver called after everything that was added before, and returns at once.
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
		go q.run()
	}
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		now, lost := q.waiting, q.lost
		q.waiting, q.lost = nil, 0
		if len(now) == 0 {
			close(q.idle)
			q.idle = nil
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, deliver := range now {
			deliver()
		}
		if lost > 0 {
			q.leftOut(lost)
		}
	}
}

// Flush waits until everything was delivered, for a second at most.
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
