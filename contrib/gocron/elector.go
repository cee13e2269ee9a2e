package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
)

// retryPause is the pause before a candidate retries a failed campaign.
const retryPause = time.Second

// Elector makes one of all schedulers the leader, which runs all jobs. It is a gocron.Elector, for
// gocron.WithDistributedElector: see package election for its promises. It is safe for concurrent
// use.
type Elector struct {
	stop context.CancelFunc
	over chan struct{} // closed when the campaign has ended for good

	mu   sync.Mutex // guards term and err
	term *term      // nil: this process does not lead
	err  error      // the error of the latest campaign; nil after an election
}

var _ gocron.Elector = (*Elector)(nil)

// term is the time for which this process leads.
type term struct {
	ctx   context.Context
	token int64
	tasks sync.WaitGroup // jobs made by Task that run under this term
}

// NewElector makes this process a candidate, in the background, until Close. All processes that
// give the same name elect one leader. A candidate that cannot stand, for instance because the
// database is unavailable or has no tables, tries again every second. IsLeader returns the reason.
//
// NewElector returns ErrInvalidOption for a nil client, and ErrInvalidName for an empty name,
// before any I/O.
func NewElector[TX any](client *dblock.Client[TX], name string, options ...election.Option) (*Elector, error) {
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case name == "":
		return nil, fmt.Errorf("dblock: gocron: %w: the name of the election is empty", dblock.ErrInvalidName)
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{stop: stop, over: make(chan struct{})}
	elections := election.New(client)
	go e.stand(ctx, func(ctx context.Context) error {
		return elections.Campaign(ctx, name, func(ctx context.Context, t *election.Term) error {
			e.lead(ctx, t.Token())
			return nil
		}, options...)
	})
	return e, nil
}

// stand campaigns repeatedly, until ctx ends or no campaign can succeed any more.
func (e *Elector) stand(ctx context.Context, campaign func(ctx context.Context) error) {
	defer close(e.over)
	for {
		err := campaign(ctx)
		e.set(nil, err)
		if ctx.Err() != nil || hopeless(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// hopeless reports whether a campaign would fail again, whatever the state of the database.
func hopeless(err error) bool {
	for _, final := range []error{dblock.ErrInvalidOption, dblock.ErrInvalidName, dblock.ErrUnsupported,
		dblock.ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// lead leads until ctx ends, and returns when no task of the term runs any more: only then is the
// lock handed on.
func (e *Elector) lead(ctx context.Context, token int64) {
	t := &term{ctx: ctx, token: token}
	e.set(t, nil)
	<-ctx.Done()
	e.set(nil, nil) // from here on no task joins the term
	t.tasks.Wait()
}

func (e *Elector) set(t *term, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.err = t, err
}

// IsLeader returns nil if this process leads, and otherwise election.ErrNotLeader, joined with the
// reason if the process cannot stand for election. It looks at memory only and never waits. The
// answer changes when the lock is lost, before another process can lead.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil && e.term.ctx.Err() == nil {
		return nil
	}
	return errors.Join(election.ErrNotLeader, e.err)
}

// Task makes a function for gocron.NewTask that passes the leader's term on to the job. The context
// of fn ends with the context that gocron gives to the job, and, with cause dblock.ErrLost, when
// the term is lost. token is the fencing token of the term. The lock is not handed on before fn has
// returned.
//
// The function returns election.ErrNotLeader, without running fn, if the term has ended since
// gocron asked.
func (e *Elector) Task(fn func(ctx context.Context, token int64) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if fn == nil {
			return invalid("the function of a job is nil")
		}
		t := e.join()
		if t == nil {
			return election.ErrNotLeader
		}
		defer t.tasks.Done()
		inner, cancel := until(ctx, t.ctx)
		defer cancel()
		return fn(inner, t.token)
	}
}

// join adds a task to the present term, or returns nil if there is none.
func (e *Elector) join() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.ctx.Err() != nil {
		return nil
	}
	e.term.tasks.Add(1)
	return e.term
}

// Close ends the candidacy: the contexts of tasks end, and the next candidate leads when the tasks
// have returned. Close waits for that until ctx ends. Call it after gocron's Shutdown, which waits
// for the jobs, and before the client is closed. It returns the error of the last campaign, or that
// of ctx. Close is idempotent.
func (e *Elector) Close(ctx context.Context) error {
	e.stop()
	select {
	case <-e.over:
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.err
	case <-ctx.Done():
		return fmt.Errorf("dblock: gocron: tasks of the leader still run: %w", context.Cause(ctx))
	}
}
