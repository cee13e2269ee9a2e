package client

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/coalesce"
)

const (
	// lingerLimit is how long a request waits at most for others of its session, before it joins
	// the queue.
	lingerLimit = 5 * time.Millisecond
	lingerPause = 200 * time.Microsecond
)

// joins are the queues that goroutines of one session are about to join, each together with the
// others that join it.
type joins struct {
	engine driver.Queue
	calls  *calls
	clock  func() time.Duration
	ahead  func(name string) (n int, rivals bool) // Hub.Ahead

	mu    sync.Mutex // protects what follows
	names map[string]*joining
}

type joining struct {
	*coalesce.Coalescer[*driver.Request, joined]
	users int
}

// joined is what came of a request.
type joined struct {
	outcome driver.Outcome
	grant   driver.Grant
	asked   time.Duration // by the clock, before the statement was sent
}

func newJoins(engine driver.Queue, calls *calls, clock func() time.Duration, ahead func(string) (int, bool)) *joins {
	return &joins{engine: engine, calls: calls, clock: clock, ahead: ahead, names: map[string]*joining{}}
}

// of is where to join the queue of a name. done MUST be called afterwards.
func (j *joins) of(name string) *joining {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.names[name]
	if of == nil {
		of = &joining{Coalescer: coalesce.New(coalesce.Config[*driver.Request, joined]{
			Run: j.run, Most: maxExchange, Go: j.calls.underWay.Go, Slots: 1, // a second would wait for the row that the first has locked
		})}
		j.names[name] = of
	}
	of.users++
	return of
}

func (j *joins) done(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if of := j.names[name]; of.users == 1 {
		delete(j.names, name)
	} else {
		of.users--
	}
}

// alone reports whether a request is to be sent by its caller, which calls done then. Otherwise it
// goes together with others.
func (j *joins) alone(name string, of *joining) (done func(), alone bool) {
	free, alone := of.Alone()
	if !alone || !j.lingers(name, of) {
		return free, alone
	}
	j.calls.underWay.Go(func() {
		defer free()
		for end := j.clock() + lingerLimit; j.clock() < end && j.lingers(name, of); {
			time.Sleep(lingerPause)
		}
		time.Sleep(lingerPause) // the way from Unlock to Lock
	})
	return nil, false
}

// lingers reports whether a request is to wait for others of its session, which are to have the
// name before it. They will ask again, and then all of them are a run; with requests of other
// sessions between them they would be none.
func (j *joins) lingers(name string, of *joining) bool {
	ahead, rivals := j.ahead(name)
	j.mu.Lock()
	defer j.mu.Unlock()
	return rivals && ahead > of.users
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
	asked := j.clock()
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
