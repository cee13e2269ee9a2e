package client

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/observe"
)

// queued returns an Observer that queues its calls of o, so that no caller waits for the
// application. AcquireStart is not queued, because it makes the context of the attempt.
func queued(o *observe.Observer, queue *tell.Queue) *observe.Observer {
	later := observe.Observer{
		AcquireStart: o.AcquireStart, HoldEnd: one(queue, o.HoldEnd), RunEnd: one(queue, o.RunEnd),
		SlotsLeftOut: one(queue, o.SlotsLeftOut), Heartbeat: two(queue, o.Heartbeat), Listener: two(queue, o.Listener),
	}
	if o.AcquireEnd != nil {
		later.AcquireEnd = func(ctx context.Context, a observe.Attempt, r observe.AcquireResult) {
			queue.Add(func() { o.AcquireEnd(ctx, a, r) })
		}
	}
	return &later
}

// one returns a callback that queues the calls of another one; nil stays nil.
func one[A any](queue *tell.Queue, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	return func(a A) { queue.Add(func() { f(a) }) }
}

// two is one for callbacks with two arguments.
func two[A, B any](queue *tell.Queue, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { queue.Add(func() { f(a, b) }) }
}

// attemptAt returns the attempt of a request.
func attemptAt(r *protocol.Request, wait bool) observe.Attempt {
	a := observe.Attempt{Name: r.Name, Wait: wait, Shared: r.Units > 0, Candidate: r.Candidate}
	if r.Units > 0 && r.Of != protocol.Readers {
		a.Permits = r.Units
	}
	return a
}

// observation is an attempt in progress that was reported; nil: there is no observer.
type observation struct {
	observer *observe.Observer
	ctx      context.Context
	attempt  observe.Attempt
	began    time.Time
}

// end reports the result of the attempt to the observer. reporter.acquired reports a lock.
func (s *observation) end(token int64, err error) {
	if s != nil && s.observer.AcquireEnd != nil {
		took := time.Since(s.began)
		s.observer.AcquireEnd(s.ctx, s.attempt, observe.AcquireResult{Took: took, Token: token, Err: err})
	}
}

// observations are the attempts at several names; nil: there is no observer.
type observations []*observation

// at returns the attempt at one of them; nil without an observer.
func (s observations) at(i int) *observation {
	if s == nil {
		return nil
	}
	return s[i]
}

// under returns the context with which the attempt at one of them continues: ctx without an
// observer.
func (s observations) under(i int, ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return s[i].ctx
}

// from returns the attempts without the first i.
func (s observations) from(i int) observations {
	if s == nil {
		return nil
	}
	return s[i:]
}

// fail reports the failure of all of them to the observer.
func (s observations) fail(err error) {
	for i := range s {
		s[i].end(0, err)
	}
}
