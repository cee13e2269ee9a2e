package suite

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// counting counts what is sent of a lock.
type counting struct {
	removed, changed atomic.Int64
	answer           chan struct{} // not nil: answers about other ops are held back until it is closed
}

func (c *counting) hook(ctx context.Context, call *fakedb.Call) error {
	if call.Method != "Run" {
		return call.Do(ctx)
	}
	switch call.Ops[0].(type) {
	case protocol.Take, protocol.Join:
	case protocol.Removal:
		c.removed.Add(1)
	default:
		err := call.Do(ctx)
		c.changed.Add(1)
		if c.answer != nil {
			<-c.answer
		}
		return err
	}
	return call.Do(ctx)
}

// relay is a client of which some goroutines are about to get a lock as a cohort.
type relay struct {
	*counting
	app     App
	client  Client
	waiters []<-chan outcome
	before  *dblock.Lock // of another client, which has the lock until then
}

// relay has goroutines of one client queue behind another client, one after the other, in one
// place.
func (e *env) relay(t *testing.T, name string, n int, options ...dblock.Option) *relay {
	t.Helper()
	a := e.app(t, 5)
	r := &relay{app: a, counting: &counting{}}
	a.hook(r.counting.hook)
	r.client = e.clientOf(t, a, options...)
	r.before = lock(t, e.client(t), name)
	for i := range n {
		r.waiters = append(r.waiters, locking(t.Context(), r.client, name))
		e.queued(t, name, i+1)
	}
	return r
}

// second lets the first member of a relay have the lock and pass it on, and returns the second's
// lock.
func (r *relay) second(t *testing.T) *dblock.Lock {
	t.Helper()
	unlock(t, r.before)
	unlock(t, granted(t, soon, r.waiters[0]))
	return granted(t, soon, r.waiters[1])
}

// rest has those behind a lock have it, each with a higher token, and the name is free then.
func (r *relay) rest(t *testing.T, e *env, l *dblock.Lock, waiters ...<-chan outcome) {
	t.Helper()
	tokens := []int64{l.Token()}
	for _, waiter := range waiters {
		next := granted(t, soon, waiter)
		tokens = append(tokens, next.Token())
		unlock(t, next)
	}
	rising(t, tokens...)
	e.free(t, l.Name())
}

// anew has those behind a lock that was lost have it in any order: they have asked anew.
func (r *relay) anew(t *testing.T, e *env, l *dblock.Lock, waiters ...<-chan outcome) {
	t.Helper()
	all := make(chan outcome, len(waiters))
	for _, waiter := range waiters {
		go func() { all <- <-waiter }()
	}
	r.rest(t, e, l, slices.Repeat([]<-chan outcome{all}, len(waiters))...)
}
