//go:build unix

package fault

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/session"
)

// evSaw: an observer was told of a leader, or, with token 0, that there is none. Name is the
// leader's label.
const evSaw = "saw"

// assurance is how often a leader says that it believes in its term, so that a killed one has said
// so.
const assurance = 10 * time.Millisecond

// labelKey is the metadata that a candidate carries.
const labelKey = "label"

// stand is an actor's part in an election: it campaigns, or observes.
type stand struct {
	elections *election.Elections
	cancel    context.CancelFunc
	done      sync.WaitGroup
	ops       atomic.Int64
	err       error // to be read after done
}

func (a *actor) take(part func(ctx context.Context, s *stand) error) {
	s := &stand{elections: election.New(a.client.Client)}
	s.ops.Store(firstCrewOp)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(func() { s.err = part(ctx, s) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stand = s
}

// standDown ends the actor's part, if it has one.
func (a *actor) standDown() error {
	a.mu.Lock()
	s := a.stand
	a.mu.Unlock()
	if s == nil {
		return nil
	}
	s.cancel()
	s.done.Wait()
	return s.err
}

func (a *actor) resign(c command) {
	a.mu.Lock()
	elections := a.stand.elections
	a.mu.Unlock()
	a.report(event{What: evDone, Op: c.Op}.with(elections.Resign(context.Background(), c.Name)))
}

func (a *actor) campaign(c command) {
	a.take(func(ctx context.Context, s *stand) error {
		err := s.elections.Campaign(ctx, c.Name, func(ctx context.Context, t *election.Term) error {
			a.rule(ctx, int(s.ops.Add(1)), t, assurance)
			return nil
		}, election.Metadata(map[string]string{labelKey: c.Names[0]}), election.Weight(1+os.Getpid()%2))
		if ctx.Err() == nil {
			a.report(event{What: evRefused, Op: c.Op}.with(err))
		}
		return err
	})
}

// rule leads, and does nothing but to say so, again and again.
func (a *actor) rule(ctx context.Context, op int, t *election.Term, assurance time.Duration) {
	began := session.Boottime()
	a.witness.add(op, ctx, began)
	defer a.witness.remove(op)
	e := event{What: evHeld, Op: op, Name: t.Name(), Token: t.Token(), At: began}
	a.report(e)
	tick := time.NewTicker(assurance)
	defer tick.Stop()
	for {
		e.At, e.Live = 0, a.witness.live(op)
		select {
		case <-tick.C:
			e.What = evEnding
			a.report(e)
		case <-ctx.Done():
			e.What = evLost
			a.report(e.with(context.Cause(ctx)))
			return
		}
	}
}

func (a *actor) observe(c command) {
	a.take(func(ctx context.Context, s *stand) error {
		for l, err := range s.elections.Observe(ctx, c.Name) {
			switch {
			case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
				return nil
			case err != nil:
				a.report(event{What: evRefused, Op: c.Op}.with(err))
				return err
			}
			a.report(event{What: evSaw, Op: c.Op, Token: l.Token, Name: l.Metadata[labelKey]})
		}
		return nil
	})
}
