package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// maxBatch limits the names that one statement takes or releases.
const maxBatch = 1000

// Locks are several locks that are held as one.
type Locks struct {
	client *Client
	locks  []*Lock // in the order of their names
	ctx    context.Context
	cancel context.CancelCauseFunc

	unwatch []func() bool // stop watching the contexts of the locks, which may go on

	mu       sync.Mutex // one Unlock at a time
	unlocked bool
	outcomes []error // of each lock, in the order of the names
}

// All returns the locks, in the order of their names.
func (l *Locks) All() []*Lock { return l.locks }

// Context ends when the first of the locks does.
func (l *Locks) Context() context.Context { return l.ctx }

// AcquireAll takes all names, or none. The names are sorted and have one owner. With an error it
// returns the name that failed.
func (c *Client) AcquireAll(ctx context.Context, wants []Want, wait bool) (_ *Locks, failed string, err error) {
	first := wants[0].Name
	if ctx.Err() != nil {
		return nil, first, context.Cause(ctx)
	}
	if err := c.store.Begin(); err != nil {
		return nil, first, err
	}
	defer c.store.Done()
	ctx, cancel := contract.WaitAtMost(ctx, wants[0].AtMost)
	defer cancel()
	o := c.owners.Of(ctx, wants[0].Owner)
	requests := make([]protocol.Request, len(wants))
	for i, w := range wants {
		requests[i] = w.Request
		requests[i].Patient = wait
	}
	for {
		all, failed, err := c.gather(ctx, requests, o, wait)
		switch {
		case err == nil:
			for i, l := range all.locks {
				l.watch(wants[i].Progress)
			}
			return all, "", nil
		case ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) && !errors.Is(err, driver.ErrUnavailable):
			err = c.store.Unanswered(ctx, err)
		case errors.Is(err, errLostMeanwhile) && c.store.Closing():
			err = ErrClosed
		case errors.Is(err, errLostMeanwhile) && wait: // a lock that the call held was lost: begin anew
			store.Pause(ctx, 10*time.Millisecond)
			continue
		case errors.Is(err, errLostMeanwhile):
			err = c.NotAcquired(err)
		}
		return nil, failed, err
	}
}

// gather takes all names in their order. If a name fails, gather releases the locks that it has
// taken, and returns that name.
func (c *Client) gather(
	ctx context.Context, requests []protocol.Request, o ledger.Owner, wait bool,
) (_ *Locks, failed string, err error) {
	all := &Locks{client: c}
	ctx = c.owners.Joint(ctx, o)
	under := c.owners.With(context.WithoutCancel(ctx), o, c.owners.Path(ctx, o))
	inner, cancelAll := context.WithCancelCause(context.WithValue(under, all, true))
	all.ctx, all.cancel = contract.Asking(inner, all.lapse), cancelAll
	within, cancel := context.WithCancelCause(ctx) // ends when the first lock is lost
	defer cancel(nil)
	defer context.AfterFunc(all.ctx, func() { cancel(errLostMeanwhile) })()
	obs := c.tellStarts(within, requests, wait)
	together := !o.Explicit // an explicit owner takes its own locks over one by one
	for len(requests) > 0 && err == nil {
		failed = requests[0].Name
		var taken int
		if together {
			if taken, err = c.takeBatch(within, all, requests, o, obs); store.Refusal(err) { // of one of the names
				together, err = false, nil
			}
		}
		if err == nil && taken < len(requests) {
			failed = requests[taken].Name
			var h *ledger.Hold
			r := requests[taken]
			if h, err = c.acquire(obs.under(taken, within), &r, o, wait); err == nil {
				all.add(h, obs.at(taken), h.ID != r.Attempt)
				taken++
			}
		}
		requests, obs = requests[taken:], obs.from(taken)
	}
	obs.fail(err)
	for _, l := range all.locks { // all.ctx ends a moment later
		if cause := context.Cause(l.Context()); err == nil && cause != nil {
			failed, err = l.Name(), cause
		}
	}
	if err == nil {
		return all, "", nil
	}
	if ctx.Err() == nil && all.ctx.Err() != nil || errors.Is(err, ErrLost) {
		err = errLostMeanwhile
	}
	if ctx.Err() == nil {
		_ = all.Unlock(ctx) // the client goes on to release the others
		return nil, failed, err
	}
	c.store.Go(func() { _ = all.Unlock(ctx) }) // ctx has ended: the caller waits no longer
	return nil, failed, err
}

// lapse ends the context of the locks if that of one has ended by the clock. Locks without a fixed
// lease end with their session, so that one of them is asked.
func (l *Locks) lapse() {
	var asked *store.Session
	for _, one := range l.locks {
		if h := one.hold; h.Fixed() || h.In != asked {
			if h.Context().Err() != nil {
				l.cancel(context.Cause(h.Context()))
				return
			}
			if h.In.Over() == nil { // the context of a lock that UnlockTx has released outlives its session
				asked = h.In
			}
		}
	}
}

// add adds a hold. It is not safe for concurrent use.
func (l *Locks) add(h *ledger.Hold, obs *observation, entered bool) {
	l.locks = append(l.locks, l.client.handle(h, obs, entered))
	l.client.ledger.TakenWith(h, l)
	l.unwatch = append(l.unwatch, context.AfterFunc(h.Context(), func() { l.cancel(context.Cause(h.Context())) }))
}

// takeBatch takes, in one statement, the names before the first that is not free or that the owner
// holds already. It returns the number of names taken.
func (c *Client) takeBatch(
	ctx context.Context, all *Locks, requests []protocol.Request, o ledger.Owner, obs observations,
) (int, error) {
	fresh := 0
	for _, r := range requests[:min(len(requests), maxBatch)] {
		leave := c.ledger.Enter(ctx, r.Name, o, false)
		if leave == nil { // another goroutine of the same owner acquires it
			break
		}
		defer leave()
		if c.ledger.Owned(r.Name, o) != nil || c.ledger.Contended(r.Name) || c.checkPermits(ctx, &r, o) != nil {
			break
		}
		if r.Units > 0 || r.MinHold > 0 { // these are taken one by one
			break
		}
		fresh++
	}
	if fresh < 2 { // Lock takes a single name as well
		return 0, nil
	}
	s, err := c.sessions.Open(ctx, false)
	if err != nil {
		return 0, c.ignoreTransient(err)
	}
	rs := slices.Clone(requests[:fresh])
	attempts, takes := make([]*ledger.Attempt, fresh), make([]protocol.Op, fresh)
	for i := range rs {
		rs[i].Session, rs[i].Attempt, rs[i].Host, rs[i].Thread = s.ID, c.owners.Attempt(ctx, o), o.Host, o.Thread
		attempts[i] = c.ledger.Request(rs[i].Name, rs[i].Attempt)
		takes[i] = protocol.Take{Request: rs[i]}
	}
	results, asked, err := c.store.Run(ctx, takes...)
	taken := 0
	gap := false // a name was not taken: the names after it are out of order
	for i := range rs {
		if err != nil || !results[i].Done() {
			c.ledger.Move(attempts[i], ledger.Finish)
			gap = true
			continue
		}
		if !gap {
			got := &receipt{Answer: store.Answer{Grant: results[i].Grant, Asked: asked}}
			if h, ok := c.rely(obs.under(i, ctx), s, attempts[i], &rs[i], o, got); ok {
				all.add(h, obs.at(i), false)
				taken++
				continue
			}
			gap = true // the answer came after a lease had expired
		}
		c.abandon(s, attempts[i], store.Something)
	}
	if err != nil && store.ResidueOf(err) == store.Unsure {
		s.Doubt() // if the statement takes locks later, these are released
	}
	return taken, c.ignoreTransient(err)
}

// ignoreTransient drops the errors that acquire handles for each name: a lost race, an outage,
// missing tables.
func (c *Client) ignoreTransient(err error) error {
	if c.store.Transient(err) || errors.Is(err, driver.ErrSchema) {
		return nil
	}
	return err
}

// Unlock releases all locks, those without waiters in one transaction. It goes on after an error,
// and returns the result of each Unlock in the order of the names.
func (l *Locks) Unlock(ctx context.Context) []error {
	ctx, cancel := contract.ToUnlock(ctx, l.enclosing(ctx))
	defer cancel()
	if err := store.LockWithin(ctx, l.mu.TryLock); err != nil {
		return slices.Repeat([]error{err}, len(l.locks))
	}
	defer l.mu.Unlock()
	if l.unlocked {
		return l.outcomes
	}
	for part := range slices.Chunk(l.locks, maxBatch) {
		l.client.releaseBatch(ctx, part)
	}
	last := len(l.locks) - 1
	l.outcomes = parallel(len(l.locks), func(i int) error { return l.locks[last-i].unlock(ctx) })
	slices.Reverse(l.outcomes)
	for i, stop := range l.unwatch {
		if cause := context.Cause(l.locks[i].Context()); errors.Is(cause, ErrLost) {
			l.cancel(cause)
		}
		stop()
	}
	l.cancel(errUnlocked)
	l.unlocked = !slices.ContainsFunc(l.outcomes, func(err error) bool {
		return err != nil && !errors.Is(err, ErrLost)
	})
	return l.outcomes
}

// enclosing returns the key of ctx if it is under the Locks, or under one of them.
func (l *Locks) enclosing(ctx context.Context) (key any) {
	for _, one := range l.locks {
		if ctx.Value(one.hold) != nil {
			return one.hold
		}
	}
	return l
}

// releaseBatch releases the simple locks in one statement. Unlock then finds them unlocked, and
// releases the others, among them those of which another call is in flight.
func (c *Client) releaseBatch(ctx context.Context, locks []*Lock) {
	if len(locks) < 2 || c.store.Begin() != nil {
		return
	}
	defer c.store.Done()
	together := map[protocol.Held]*Lock{}
	for _, l := range locks { // in the order of the names, so that two calls do not deadlock
		if !l.mu.TryLock() {
			continue
		}
		defer l.mu.Unlock()
		if !l.hold.Entries.TryLock() {
			continue
		}
		defer l.hold.Entries.Unlock()
		if l.simple() {
			together[l.hold.Held()] = l
		}
	}
	if len(together) < 2 {
		return
	}
	for h, l := range together {
		c.ledger.Leave(l.hold)
		c.ledger.Drop(l.hold, errUnlocked)
		if l.hold.Guarded.Load() { // meanwhile: Unlock waits for the end of the transaction
			delete(together, h)
		}
	}
	if len(together) == 0 {
		return
	}
	list := slices.SortedFunc(maps.Keys(together), func(a, b protocol.Held) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
	})
	releases := make([]protocol.Op, len(list))
	for i, h := range list {
		releases[i] = protocol.Release(h, false, false)
	}
	var released []protocol.Result
	briefly := store.Briefly
	briefly.Tries = 3
	err := c.store.Retry(ctx, briefly, func() (err error) {
		released, _, err = c.store.Run(ctx, releases...)
		return err
	})
	if err != nil { // Unlock retries each; a lock that this statement has released is no loss
		for _, l := range together {
			l.hold.Entries.Unanswered = store.ResidueOf(err) == store.Unsure
		}
		return
	}
	for i, h := range list {
		if l := together[h]; released[i].Done() {
			c.ledger.Move(l.hold.Attempt, ledger.Finish)
			c.record(l.hold, history.Released, "")
			c.tellEnded(l.hold, nil)
			l.unlocked = true
		}
	}
}

// simple reports whether the statement for many can release the lock: it is the last entry of a
// hold whose mode is certain and that had no waiters. MUST be called with the mutexes of the lock
// and of the hold's Entries locked.
func (l *Lock) simple() bool {
	h := l.hold
	return !l.unlocked && l.client.ledger.Entered(h) == 1 && h.Context().Err() == nil && h.In.Over() == nil &&
		!h.Grant.Contended && !h.Member.InOpenCohort() && !h.Guarded.Load() && h.Mode.Load().Doubt == ledger.Certain &&
		l.client.ledger.State(h.Attempt) == ledger.Held
}
