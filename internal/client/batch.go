package client

import (
	"context"
	"errors"
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
	obs := c.report.starts(within, requests, wait)
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
			var claim *ledger.Claim
			r := requests[taken]
			one := attempt{Client: c, r: &r, owner: o, wait: wait}
			if claim, err = one.acquire(obs.under(taken, within)); err == nil {
				all.add(claim, obs.at(taken), one.entered)
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
		if claim, in := one.claim, one.claim.Grant.In; claim.Fixed() || in != asked {
			if claim.Context().Err() != nil {
				l.cancel(context.Cause(claim.Context()))
				return
			}
			if in.Over() == nil { // the context of a lock that UnlockTx has released outlives its session
				asked = in
			}
		}
	}
}

// add adds a lock. It is not safe for concurrent use.
func (l *Locks) add(claim *ledger.Claim, obs *observation, entered bool) {
	l.locks = append(l.locks, l.client.handle(claim, obs, entered))
	l.client.ledger.TakenWith(claim, l)
	ctx := claim.Context()
	l.unwatch = append(l.unwatch, context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) }))
}

// takeBatch takes, in one statement, the names before the first that is not free or that the owner
// holds already. It returns the number of names taken.
func (c *Client) takeBatch(
	ctx context.Context, all *Locks, requests []protocol.Request, o ledger.Owner, obs observations,
) (int, error) {
	fresh := 0
	for _, r := range requests[:min(len(requests), maxBatch)] {
		done := c.ledger.Serialize(ctx, r.Name, o, false)
		if done == nil { // another goroutine of the same owner acquires it
			break
		}
		defer done()
		one := attempt{Client: c, r: &r, owner: o}
		if c.ledger.Owned(r.Name, o) != nil || c.ledger.Contended(r.Name) || one.checkPermits(ctx) != nil {
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
	claims, takes := make([]*ledger.Claim, fresh), make([]protocol.Op, fresh)
	for i := range rs {
		rs[i].Session, rs[i].Attempt, rs[i].Host, rs[i].Thread = s.ID, c.owners.Attempt(ctx, o), o.Host, o.Thread
		claims[i] = c.ledger.Request(s, &rs[i], o)
		takes[i] = protocol.Take{Request: rs[i]}
	}
	results, asked, err := c.store.Run(ctx, takes...)
	taken := 0
	gap := false // a name was not taken: the names after it are out of order
	for i, claim := range claims {
		if err != nil || !results[i].Done() {
			c.ledger.Finish(claim.Grant, true)
			gap = true
			continue
		}
		got := store.Answer{Outcome: results[i].Outcome, Grant: results[i].Grant, Asked: asked, Left: store.Something}
		if !gap && c.hold(obs.under(i, ctx), claim, &got) == nil {
			all.add(claim, obs.at(i), false)
			taken++
			continue
		}
		gap = true // also where the answer came after a lease had expired
		c.undo(claim.Grant, got)
	}
	if err != nil && store.ResidueOf(err) == store.Unsure {
		s.NoteUnknown() // if the statement takes locks later, these are released
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
		if ctx.Value(one.claim) != nil {
			return one.claim
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
	var together []*Lock
	for _, l := range locks { // in the order of the names, so that two calls do not deadlock
		if !l.mu.TryLock() {
			continue
		}
		defer l.mu.Unlock()
		order := l.claim.Grant.Order
		if !order.TryLock() {
			continue
		}
		defer order.Unlock()
		if l.simple() {
			together = append(together, l)
		}
	}
	if len(together) < 2 {
		return
	}
	together = slices.DeleteFunc(together, func(l *Lock) bool { // ended meanwhile, or guarded: Unlock goes on
		c.ledger.Leave(l.claim)
		dropped := c.ledger.Drop(l.claim, errUnlocked)
		return !dropped || l.claim.Grant.Guarded.Load()
	})
	if len(together) < 2 { // a release alone may hand the lock on: Unlock delivers that
		return
	}
	releases := make([]protocol.Op, len(together))
	for i, l := range together {
		releases[i] = protocol.Release(l.claim.Held(), false, false)
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
			if store.ResidueOf(err) == store.Unsure {
				c.ledger.ReleaseUnanswered(l.claim.Grant)
			}
		}
		return
	}
	for i, l := range together {
		if released[i].Done() {
			c.ledger.Finish(l.claim.Grant, false)
			c.report.record(l.claim, history.Released, "")
			c.report.ended(l.claim, nil)
			l.unlocked = true
		}
	}
}

// simple reports whether the statement for many can release the lock: it is the last entry of the
// only claim that the lock is for, its mode is certain, and it had no waiters. MUST be called with
// the mutex of the lock and Order locked.
func (l *Lock) simple() bool {
	book, claim, g := l.client.ledger, l.claim, l.claim.Grant
	return !l.unlocked && book.Entered(claim) == 1 && claim.Context().Err() == nil && g.In.Over() == nil &&
		!g.Given.Contended && !g.Guarded.Load() && g.Mode.Load().Plain() && book.Relies(claim)
}
