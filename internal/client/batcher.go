package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/driver"
)

// maxStatement is how many names one statement of a batcher takes and releases.
const maxStatement = 256

// batcher lets the goroutines of one session take and release whole names together, where that
// makes nobody wait. What does not go so goes alone.
type batcher struct {
	engine driver.Names
	calls  *calls
	clock  clock.Clock
	*coalesce.Coalescer[change, outcome]
}

// change is a request, or a release.
type change struct {
	take    driver.Request
	release driver.Held
}

func (c change) name() string { return c.take.Name + c.release.Name }

// outcome is what came of a change: a grant, or that the lock is released. Where nothing was done
// the name was not plainly free, or the lock not plainly without waiters.
type outcome struct {
	done  bool
	grant driver.Grant
	asked time.Duration // by the clock, before the statement was sent
}

func newBatcher(engine driver.Names, calls *calls, clock clock.Clock) *batcher {
	x := &batcher{engine: engine, calls: calls, clock: clock}
	x.Coalescer = coalesce.New(coalesce.Config[change, outcome]{
		Run: x.run, Refused: isRefusal, Key: change.name, Most: maxStatement, Go: calls.underWay.Go,
	})
	return x
}

// run sends a batch. No single caller's context ends it.
func (x *batcher) run(changes []change) ([]outcome, error) {
	var takes []driver.Request
	var releases []driver.Held
	for _, c := range changes {
		if c.take.Name != "" {
			takes = append(takes, c.take)
		} else {
			releases = append(releases, c.release)
		}
	}
	outcomes := make([]outcome, len(changes))
	asked := x.clock.Now()
	var grants []driver.Grant
	var released []bool
	err := x.calls.statement(x.calls.tidying, func(ctx context.Context) (err error) {
		grants, released, err = x.engine.Batch(ctx, takes, releases)
		return err
	})
	if errors.Is(err, driver.ErrBusy) { // one of them had to wait, and nothing was done: each goes alone
		return outcomes, nil
	}
	if err != nil {
		return nil, err
	}
	for i, c := range changes {
		o := &outcomes[i]
		o.asked = asked
		if c.take.Name != "" {
			o.grant, grants = grants[0], grants[1:]
			o.done = o.grant.Token != 0
		} else {
			o.done, released = released[0], released[1:]
		}
	}
	return outcomes, nil
}
