package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/coalesce"
)

const (
	// lingerLimit is how long a request waits at most for others of its session, before it joins
	// the queue, and how long the release of a run waits for requests that are on their way.
	lingerLimit = 5 * time.Millisecond
	lingerPause = 200 * time.Microsecond
)

// joins are the queues that goroutines of one session are about to join, each together with the
// others that join it.
type joins struct {
	engine driver.Queue
	calls  *calls
	clock  clock.Clock
	ahead  func(name string) (n int, rivals bool) // Hub.Ahead

	mu    sync.Mutex // protects what follows
	names map[string]*joining
}

type joining struct {
	*coalesce.Coalescer[*driver.Request, joined]
	users     int         // requests
	passable  int         // of them
	lingering atomic.Bool // what was not sent waits for those of its session that are ahead
}

// joined is what came of a request.
type joined struct {
	outcome driver.Outcome
	grant   driver.Grant
	asked   time.Duration // by the clock, before the statement was sent
}

func newJoins(engine driver.Queue, calls *calls, clock clock.Clock, ahead func(string) (int, bool)) *joins {
	return &joins{engine: engine, calls: calls, clock: clock, ahead: ahead, names: map[string]*joining{}}
}

// of is where a request joins the queue of its name. done MUST be called afterwards.
func (j *joins) of(r *driver.Request) *joining {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.names[r.Name]
	if of == nil {
		of = &joining{Coalescer: coalesce.New(coalesce.Config[*driver.Request, joined]{
			Run: j.run, Most: maxExchange, Go: j.calls.underWay.Go, Slots: 1, // a second would wait for the row that the first has locked
		})}
		j.names[r.Name] = of
	}
	of.count(r, 1)
	return of
}

func (j *joins) done(r *driver.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if of := j.names[r.Name]; of.count(r, -1) == 0 {
		delete(j.names, r.Name)
	}
}

func (j *joining) count(r *driver.Request, change int) (users int) {
	j.users += change
	if r.Passable {
		j.passable += change
	}
	return j.users
}

// alone reports whether a request is to be sent by its caller, which calls done then. Otherwise it
// goes together with others.
func (j *joins) alone(ctx context.Context, r *driver.Request, of *joining) (done func(), alone bool) {
	free, alone := of.Alone()
	if !alone || !r.Passable || endsWithin(ctx, 2*lingerLimit) || !j.lingers(r.Name, of) {
		return free, alone
	}
	of.lingering.Store(true)
	j.calls.underWay.Go(func() {
		defer free()
		defer of.lingering.Store(false)
		for end := j.clock.Now() + lingerLimit; j.clock.Now() < end && j.lingers(r.Name, of); {
			time.Sleep(lingerPause)
		}
		time.Sleep(lingerPause) // the way from Unlock to Lock
	})
	return nil, false
}

// endsWithin reports whether ctx has a deadline that is so near.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}

// lingers reports whether a request is to wait for others of its session, which are to have the
// name before it. They will ask again, and then all of them are a run; with requests of other
// sessions between them they would be none.
func (j *joins) lingers(name string, of *joining) bool {
	j.mu.Lock() // first: users are ahead from before they come until after they go
	defer j.mu.Unlock()
	ahead, rivals := j.ahead(name)
	return rivals && ahead > of.passable
}

// drain waits a moment for the requests that are about to join the queue of a name, before a run of
// it is released: then they are the next run, as many as they are. They and the release would wait
// for each other at the name's row all the same. Where others linger for the release it does not.
func (j *joins) drain(ctx context.Context, name string) {
	if _, rivals := j.ahead(name); rivals {
		return
	}
	j.mu.Lock()
	of := j.names[name]
	j.mu.Unlock()
	if of == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lingerLimit)
	defer cancel()
	of.Drain(ctx)
}

// run sends requests for one name. No single caller's context ends it.
func (j *joins) run(all []*driver.Request) ([]joined, error) {
	rs := make([]driver.Request, len(all))
	for i, r := range all {
		rs[i] = *r
	}
	asked := j.clock.Now()
	var grant driver.Grant
	var outcome driver.Outcome
	err := j.calls.statement(j.calls.tidying, func(ctx context.Context) (err error) {
		grant, outcome, err = j.engine.Enqueue(ctx, rs...)
		return err
	})
	if err != nil {
		return nil, err
	}
	answers := make([]joined, len(rs))
	for i := range answers {
		if answers[i] = (joined{outcome: outcome, asked: asked}); outcome == driver.Granted && i > 0 {
			answers[i].outcome = driver.Queued
		}
	}
	answers[0].grant = grant
	return answers, nil
}
