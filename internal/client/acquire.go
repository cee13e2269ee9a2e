package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// acquire retries until it holds the name, or until another try is useless.
func (c *Client) acquire(ctx context.Context, r *protocol.Request, o ledger.Owner, wait bool) (*ledger.Hold, error) {
	if err := c.checkPermits(ctx, r, o); err != nil {
		return nil, err
	}
	if r.Units == 0 || r.Of == protocol.Readers { // permits are not entered again
		leave := c.ledger.Enter(ctx, r.Name, o, wait)
		if leave == nil {
			return nil, c.NotAcquired(ctx.Err())
		}
		defer leave()
	}
	r.Host, r.Thread, r.Patient = o.Host, o.Thread, wait
	policy := store.Trying
	if wait {
		policy = store.Waiting
	}
	seen := false // a holder or a waiter: the name's row was locked, or this request had a place in the queue
	var transactions txWait
	for tries := c.store.Tries(policy); ; {
		h, err := c.try(ctx, r, o, wait)
		if err == nil {
			return h, nil
		}
		transactions.refused(ctx, c, r.Name, err, wait)
		if errors.Is(err, driver.ErrBusy) {
			r.Patient = false // a long transaction: from now on only knock
			seen = seen || wait
			if !wait { // look first from now on: the look names the holder
				c.ledger.SetContended(r.Name, true)
			}
		}
		seen = seen || errors.Is(err, store.ErrPlaceGone)
		if !tries.Again(ctx, err) { // also after a refusal by a locked row
			err = transactions.last(ctx, err)
			if !wait && ctx.Err() == nil {
				err = transactions.obstacle(ctx, c, r.Name, err)
			}
			return nil, c.whyNot(ctx, err, seen)
		}
	}
}

// whyNot converts the error of the last try for the caller of Lock or TryLock. If the context has
// ended, the result is ErrNotAcquired where a holder or a waiter was seen, and ErrUnavailable
// otherwise.
func (c *Client) whyNot(ctx context.Context, err error, seen bool) error {
	busy := errors.Is(err, driver.ErrBusy)
	if busy && !errors.Is(err, ErrNotAcquired) {
		err = inTheWay(err)
	}
	switch {
	case errors.Is(err, ErrNotAcquired):
		return err
	case ctx.Err() != nil && (seen || busy):
		return c.NotAcquired(store.Ended(ctx, err))
	case ctx.Err() != nil:
		return c.store.Unanswered(ctx, err)
	}
	return c.store.Explain(ctx, err)
}

// checkPermits refuses a request that would wait for permits of its own caller.
func (c *Client) checkPermits(ctx context.Context, r *protocol.Request, o ledger.Owner) error {
	if _, under := c.owners.In(ctx); !under {
		return nil
	}
	mine, of := c.ledger.Units(ctx, r.Name, o)
	switch {
	case mine == 0:
		return nil
	case r.Units > 0 && r.Of != protocol.Readers && r.Of != of:
		return fmt.Errorf("%w: Permits: asked for %d of %d, and held %d of %d: ask with the same number",
			ErrInvalidOption, r.Units, r.Of, mine, of)
	case r.Units == 0 || r.Of == protocol.Readers || mine+r.Units > r.Of:
		return c.selfDeadlock(o, r.Name, r.Units)
	}
	return nil
}

// checkEnclosing refuses a request that would wait for a lock of its own caller, by another client
// of this process. A name in another database is another lock, so the other client's session must
// hold the name in this database.
func (c *Client) checkEnclosing(ctx context.Context, r *protocol.Request, o ledger.Owner) error {
	for _, by := range c.owners.Elsewhere(ctx, r.Name) {
		if by.Beside(r) || o.Explicit && o == by.Owner { // an explicit owner takes over
			continue
		}
		if state, err := c.store.Look(ctx, by.Session, r.Name); err == nil && len(state.Granted) > 0 {
			cycle := c.config.Deadlocked(waitFor(o, r.Name, r.Units, by.Owner))
			return fmt.Errorf("%w, by another client of this process: this one was called under the context of that "+
				"lock", cycle)
		}
	}
	return nil
}

// selfDeadlock returns the error of an owner that would wait for a lock of its own.
func (c *Client) selfDeadlock(o ledger.Owner, name string, units int) error {
	return c.config.Deadlocked(waitFor(o, name, units, o))
}

// waitFor returns the cycle of an owner that would wait for a holder.
func waitFor(o ledger.Owner, name string, units int, holder ledger.Owner) deadlock.Cycle {
	return deadlock.Cycle{{
		Host: o.Host, Thread: o.Thread, Name: name, Units: units, HeldHost: holder.Host, HeldThread: holder.Thread,
	}}
}

// reenter enters a hold of the same owner once more. It returns nil if there is none to enter.
func (c *Client) reenter(ctx context.Context, r *protocol.Request, o ledger.Owner) (*ledger.Hold, error) {
	h := c.ledger.Owned(r.Name, o)
	if h == nil {
		return nil, nil
	}
	within, done := h.Within(ctx)
	defer done()
	err := h.Entries.Lock(within)
	if err == nil {
		defer h.Entries.Unlock()
		err = c.settle(within, h)
	}
	m := h.Mode.Load()
	switch {
	case !c.ledger.Relies(h) || h.Over() != nil: // its session, or its fixed lease
		return nil, nil
	case err != nil:
		return nil, err
	case m.Shared() && r.Units == 0:
		return nil, fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", c.selfDeadlock(o, r.Name, 0))
	case m.Shared() && r.Of != m.Of:
		return nil, fmt.Errorf("%w: this owner reads it", driver.ErrCapacity)
	}
	if err := h.Contradiction(r); err != nil {
		return nil, err
	}
	if !c.ledger.Again(h) {
		return nil, nil
	}
	return h, nil
}

// try enters the lock of the same owner again, or makes one attempt in the session that is alive,
// and undoes the attempt if it fails.
func (c *Client) try(ctx context.Context, r *protocol.Request, o ledger.Owner, wait bool) (*ledger.Hold, error) {
	if h, err := c.reenter(ctx, r, o); h != nil || err != nil {
		return h, err
	}
	if wait {
		if err := c.checkEnclosing(ctx, r, o); err != nil {
			return nil, err
		}
	}
	ctx, cancel := contract.UntilClosed(ctx, c.store.Answering)
	defer cancel()
	s, err := c.sessions.Open(ctx, wait)
	if c.store.Closing() {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	r.Session, r.Attempt = s.ID, c.owners.Attempt(ctx, o)
	if r.Candidate {
		r.Attempt = protocol.Candidacy(r.Attempt)
	}
	k := c.ledger.Request(r.Name, r.Attempt)
	got := &receipt{}
	free := !c.ledger.Contended(r.Name) && !c.queues.Busy(s, r.Name)
	if free { // as far as the client knows
		got.Answer, err = s.Take(ctx, r, true)
	}
	if err == nil && !got.Taken() {
		if free {
			c.ledger.SetContended(r.Name, true)
		}
		got, err = c.queueOrPeek(ctx, s, r, o, wait)
		if free && err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) { // a holder or a waiter was seen
			err = c.NotAcquired(store.Ended(ctx, err))
		}
	}
	h, err := c.relyOrUndo(ctx, s, k, r, o, got, err)
	if err != nil && c.store.Closing() {
		return nil, ErrClosed
	}
	return h, err
}

// relyOrUndo makes a hold of the grant that an attempt got, or undoes the attempt.
func (c *Client) relyOrUndo(
	ctx context.Context, s *store.Session, k *ledger.Attempt, r *protocol.Request, o ledger.Owner, got *receipt,
	err error,
) (*ledger.Hold, error) {
	if got.member != nil {
		k = c.ledger.Find(r.Name, got.member.Attempt())
		r.Attempt = k.ID
	}
	if err == nil {
		if h, ok := c.rely(ctx, s, k, r, o, got); ok {
			return h, nil
		}
		err, got.Left = c.unreliable(r, got), store.Something
		got.member.Leave(true)
	}
	switch got.Left {
	case store.Settled:
	case store.Nothing:
		c.ledger.Move(k, ledger.Finish)
	default:
		c.undo(k, func() {
			if got.Answered != nil {
				<-got.Answered
			}
			c.giveBack(s, k, got.Left)
		})
	}
	if s.Context().Err() != nil && !errors.Is(err, ErrNotAcquired) {
		return nil, store.ErrSessionOver
	}
	return nil, err
}

// unreliable returns the reason why the client cannot rely on a grant.
func (c *Client) unreliable(r *protocol.Request, got *receipt) error {
	now := c.config.Clock.Now()
	if !ledger.TooLate(got.Grant.Lease, got.Asked, now) {
		return store.ErrSessionOver
	}
	return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
		"the grant took %v: the database, or this machine, is too slow for a lease of %v", now-got.Asked, r.Lease,
	))
}

// queueOrPeek requests a name that is not plainly free. An owner that outlives its process first
// tries to take over its own lock. Without wait the name is read (peek), otherwise the request
// joins the queue.
func (c *Client) queueOrPeek(
	ctx context.Context, s *store.Session, r *protocol.Request, o ledger.Owner, wait bool,
) (*receipt, error) {
	if o.Explicit && r.Units == 0 {
		if answer, err := s.Reenter(ctx, r); answer.Taken() || err != nil {
			return &receipt{Answer: answer}, err
		}
	}
	if !wait {
		return c.peek(ctx, s, r)
	}
	return c.queue(ctx, s, r, o)
}

// peek reads a name before it takes it, so that finding a lock held costs no write. It first
// removes expired holders and waiters.
func (c *Client) peek(ctx context.Context, s *store.Session, r *protocol.Request) (*receipt, error) {
	var state driver.State
	for fails := 0; fails < 2; {
		var err error
		if state, err = c.store.Look(ctx, "", r.Name); err != nil {
			return &receipt{}, err
		}
		is := rowOf(state)
		if gone := overdue(state); gone != nil && !is.free(r) {
			taken, err := s.TakeOver(ctx, r.Name, *gone)
			if err != nil && !errors.Is(err, driver.ErrBusy) {
				return &receipt{}, err
			}
			if err != nil {
				return &receipt{}, c.notAcquired(state, err)
			}
			if !taken.Done() || len(taken.Next) > 0 { // another session has freed it, or the holder lives
				fails++
			}
			continue // there may be more of them
		}
		if c.undone(ctx, state.Holder.Attempt) {
			continue // the holder was an earlier attempt of this client
		}
		if state.Holder.Session == s.ID && !c.ledger.Knows(state.Holder.Attempt) {
			fails++
			continue // another earlier attempt, undone after the name was read
		}
		capacity, collides := is.Joined(r.Of)
		switch {
		case collides:
			return &receipt{}, fmt.Errorf("%w: it has %d, and was asked for as one of %d", driver.ErrCapacity, capacity,
				r.Of)
		case !is.free(r):
			return &receipt{}, c.notAcquired(state, nil)
		}
		if answer, err := s.Take(ctx, r, false); answer.Taken() || err != nil {
			return &receipt{Answer: answer}, err
		}
		fails++
	}
	return &receipt{}, c.notAcquired(state, nil)
}

// snapshot is the row of a name as it was read.
type snapshot struct {
	protocol.Row
	rests bool
}

func rowOf(s driver.State) snapshot {
	row := protocol.Row{Units: s.Used, Capacity: s.Capacity, Waiters: s.Waiters}
	if s.Sharing == 0 {
		row.Session = s.Holder.Session
	}
	return snapshot{row, s.Rest > 0}
}

// free reports whether a request is granted at once.
func (s snapshot) free(r *protocol.Request) bool {
	_, collides := s.Joined(r.Of)
	return !collides && !s.rests && s.Waiters == 0 && s.Fits(r.Units, r.Of)
}

// overdue returns an expired holder of the name, or nil.
func overdue(s driver.State) *protocol.Holder {
	for _, h := range []protocol.Holder{s.Holder, s.Head} {
		if h.Session != "" && h.Left <= 0 {
			return &h
		}
	}
	return nil
}

// queue waits for the name as the member of a cohort. The cohort has the attempt of the request
// from then on.
func (c *Client) queue(ctx context.Context, s *store.Session, r *protocol.Request, o ledger.Owner) (*receipt, error) {
	_, under := c.owners.In(ctx)
	holding := under || !o.Alone()
	if holding {
		if err := c.show(ctx, o); err != nil {
			return &receipt{}, err
		}
	}
	m, err := c.queues.Join(ctx, s, r, holding)
	if err != nil {
		return &receipt{Answer: store.Answer{Left: store.Settled}}, err
	}
	got := &receipt{member: m}
	got.Grant, got.Asked = m.Grant()
	return got, nil
}

// show makes an owner, in the database, the only holder of each of its locks, before it waits for
// another name. The search for deadlocks reads the holders in the database.
func (c *Client) show(ctx context.Context, o ledger.Owner) error {
	for _, h := range c.ledger.Crowded(o) {
		if err := c.single(ctx, h); err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}
