package client

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tell"
)

// Observer is told what a client does. Package dblock documents it.
type Observer interface {
	AcquireStart(ctx context.Context, a Acquisition) context.Context
	AcquireEnd(ctx context.Context, a Acquisition, took time.Duration, token int64, err error)
	HoldEnd(name string, token int64, held time.Duration, err error)
	RunEnd(name string, slot time.Time, took time.Duration, err error)
	SlotsLeftOut(name string, skipped, missed int64)
	Heartbeat(took time.Duration, err error)
	Listener(up bool, err error)
}

// queued is an observer that is told by a queue: nothing waits for it. AcquireStart makes the
// context of the attempt, and so is called by the attempt itself, before anything is asked.
type queued struct {
	Observer
	queue *tell.Queue
}

func (o queued) AcquireEnd(ctx context.Context, a Acquisition, took time.Duration, token int64, err error) {
	o.queue.Add(func() { o.Observer.AcquireEnd(ctx, a, took, token, err) })
}

func (o queued) HoldEnd(name string, token int64, held time.Duration, err error) {
	o.queue.Add(func() { o.Observer.HoldEnd(name, token, held, err) })
}

func (o queued) RunEnd(name string, slot time.Time, took time.Duration, err error) {
	o.queue.Add(func() { o.Observer.RunEnd(name, slot, took, err) })
}

func (o queued) SlotsLeftOut(name string, skipped, missed int64) {
	o.queue.Add(func() { o.Observer.SlotsLeftOut(name, skipped, missed) })
}

func (o queued) Heartbeat(took time.Duration, err error) {
	o.queue.Add(func() { o.Observer.Heartbeat(took, err) })
}

func (o queued) Listener(up bool, err error) {
	o.queue.Add(func() { o.Observer.Listener(up, err) })
}

// Acquisition is a name that is asked for.
type Acquisition struct {
	Name    string
	Wait    bool
	Shared  bool
	Permits int
}

// attemptAt is what the observer is told of a request.
func attemptAt(r *driver.Request, wait bool) Acquisition {
	a := Acquisition{Name: r.Name, Wait: wait, Shared: r.Units > 0}
	if r.Units > 0 && r.Of != driver.Readers {
		a.Permits = r.Units
	}
	return a
}

// observation is an attempt under way that the observer was told of; nil: there is no observer.
type observation struct {
	observer Observer
	ctx      context.Context
	attempt  Acquisition
	began    time.Time
}

// end tells the observer what came of the attempt. A hold that it gave is told of by tellAcquired.
func (s *observation) end(token int64, err error) {
	if s != nil {
		s.observer.AcquireEnd(s.ctx, s.attempt, time.Since(s.began), token, err)
	}
}

// observations are the attempts at several names; nil: there is no observer.
type observations []*observation

// at is the attempt at one of them; nil without an observer.
func (s observations) at(i int) *observation {
	if s == nil {
		return nil
	}
	return s[i]
}

// under is the context with which the attempt at one of them goes on, which is ctx without an
// observer.
func (s observations) under(i int, ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return s[i].ctx
}

// from are the attempts without the first so many.
func (s observations) from(i int) observations {
	if s == nil {
		return nil
	}
	return s[i:]
}

// fail tells the observer that all of them have failed.
func (s observations) fail(err error) {
	for i := range s {
		s[i].end(0, err)
	}
}
