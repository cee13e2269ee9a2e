package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// attempt is the acquisition of a lock by one call: its request and its owner.
type attempt struct {
	*Client
	r       *protocol.Request
	owner   ledger.Owner
	wait    bool
	entered bool // it has entered a lock that its owner had

	unrecorded bool // as of Want
}

// acquire retries until it holds the name, or until another try is useless.
func (a *attempt) acquire(ctx context.Context) (*ledger.Claim, error) {
	if err := a.checkPermits(ctx); err != nil {
		return nil, err
	}
	if a.r.Units == 0 || a.r.Of == protocol.Readers { // permits are not entered again
		done := a.ledger.Serialize(ctx, a.r.Name, a.owner, a.wait)
		if done == nil {
			return nil, a.NotAcquired(ctx.Err())
		}
		defer done()
	}
	a.r.Host, a.r.Thread, a.r.Patient = a.owner.Host, a.owner.Thread, a.wait
	policy := store.Trying
	if a.wait {
		policy = store.Waiting
	}
	seen := false // a holder or a waiter: the name's row was locked, or this request had a place in the queue
	var transactions txWait
	for tries := a.store.Tries(policy); ; {
		claim, err := a.try(ctx)
		if err == nil {
			return claim, nil
		}
		transactions.refused(ctx, a, err)
		if errors.Is(err, driver.ErrBusy) {
			a.r.Patient = false // a long transaction: from now on only knock
			seen = seen || a.wait
			if !a.wait { // look first from now on: the look names the holder
				a.ledger.SetContended(a.r.Name, true)
			}
		}
		seen = seen || errors.Is(err, store.ErrPlaceGone)
		if !tries.Again(ctx, err) { // also after a refusal by a locked row
			err = transactions.last(ctx, err)
			if !a.wait && ctx.Err() == nil {
				err = transactions.obstacle(ctx, a, err)
			}
			return nil, a.whyNot(ctx, err, seen)
		}
	}
}

// whyNot converts the error of the last try for the caller of Lock or TryLock. If the context has
// ended, the result is ErrNotAcquired where a holder or a waiter was seen, and ErrUnavailable
// otherwise.
func (a *attempt) whyNot(ctx context.Context, err error, seen bool) error {
	busy := errors.Is(err, driver.ErrBusy)
	if busy && !errors.Is(err, ErrNotAcquired) {
		err = inTheWay(err)
	}
	switch {
	case errors.Is(err, ErrNotAcquired):
		return err
	case ctx.Err() != nil && (seen || busy):
		return a.NotAcquired(store.Ended(ctx, err))
	case ctx.Err() != nil:
		return a.store.Unanswered(ctx, err)
	}
	return a.store.Explain(ctx, err)
}

// checkPermits refuses a request that would wait for permits of its own caller.
func (a *attempt) checkPermits(ctx context.Context) error {
	if _, under := a.owners.In(ctx); !under {
		return nil
	}
	mine, of := a.ledger.Units(ctx, a.r.Name, a.owner)
	switch {
	case mine == 0:
		return nil
	case a.r.Units > 0 && a.r.Of != protocol.Readers && a.r.Of != of:
		return fmt.Errorf("%w: Permits: asked for %d of %d, and held %d of %d: ask with the same number",
			ErrInvalidOption, a.r.Units, a.r.Of, mine, of)
	case a.r.Units == 0 || a.r.Of == protocol.Readers || mine+a.r.Units > a.r.Of:
		return a.selfDeadlock(a.owner, a.r.Name, a.r.Units)
	}
	return nil
}

// checkEnclosing refuses a request that would wait for a lock of its own caller, by another client
// of this process. A name in another database is another lock, so the other client's session must
// hold the name in this database.
func (a *attempt) checkEnclosing(ctx context.Context) error {
	for _, by := range a.owners.Elsewhere(ctx, a.r.Name) {
		if by.Beside(a.r) || a.owner.Explicit && a.owner == by.Owner { // an explicit owner takes over
			continue
		}
		if state, err := a.store.Look(ctx, by.Session, a.r.Name); err == nil && len(state.Granted) > 0 {
			cycle := a.config.Deadlocked(waitFor(a.owner, a.r.Name, a.r.Units, by.Owner))
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

// reenter enters a lock of the same owner once more. It returns nil if there is none to enter.
func (a *attempt) reenter(ctx context.Context) (*ledger.Claim, error) {
	claim := a.ledger.Owned(a.r.Name, a.owner)
	if claim == nil {
		return nil, nil
	}
	within, done := claim.Within(ctx)
	defer done()
	err := claim.Grant.Order.Lock(within)
	if err == nil {
		defer claim.Grant.Order.Unlock()
		err = a.ledger.Ascertain(within, claim)
	}
	m := claim.Grant.Mode.Load()
	switch {
	case !a.ledger.Relies(claim) || claim.Over() != nil: // its session, or its fixed lease
		return nil, nil
	case err != nil:
		return nil, err
	case m.Shared() && a.r.Units == 0:
		return nil, fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first",
			a.selfDeadlock(a.owner, a.r.Name, 0))
	case m.Shared() && a.r.Of != m.Of:
		return nil, fmt.Errorf("%w: this owner reads it", driver.ErrCapacity)
	}
	if err := claim.Contradiction(a.r); err != nil {
		return nil, err
	}
	if !a.ledger.Again(claim) {
		return nil, nil
	}
	a.entered = true
	return claim, nil
}

// try enters the lock of the same owner again, or makes one attempt in the session that is alive,
// and undoes the attempt if it fails.
func (a *attempt) try(ctx context.Context) (*ledger.Claim, error) {
	if claim, err := a.reenter(ctx); claim != nil || err != nil {
		return claim, err
	}
	if a.wait {
		if err := a.checkEnclosing(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := contract.UntilClosed(ctx, a.store.Answering)
	defer cancel()
	s, err := a.sessions.Open(ctx, a.wait)
	if a.store.Closing() {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	a.r.Session, a.r.Attempt = s.ID, a.owners.Attempt(ctx, a.owner)
	if a.r.Candidate {
		a.r.Attempt = protocol.Candidacy(a.r.Attempt)
	}
	claim := a.ledger.Request(s, a.r, a.owner)
	claim.Unrecorded = a.unrecorded
	var got store.Answer
	free := !a.ledger.Contended(a.r.Name) && !a.ledger.Busy(s, a.r.Name)
	if free { // as far as the client knows
		got, err = s.Take(ctx, a.r, true)
	}
	if err == nil && !got.Taken() {
		if free {
			a.ledger.SetContended(a.r.Name, true)
		}
		got, err = a.contend(ctx, claim)
		if free && err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) { // a holder or a waiter was seen
			err = a.NotAcquired(store.Ended(ctx, err))
		}
	}
	if err == nil {
		err = a.hold(ctx, claim, &got)
	}
	if err == nil {
		return claim, nil
	}
	a.undo(claim.Grant, got)
	switch {
	case a.store.Closing():
		return nil, ErrClosed
	case s.Context().Err() != nil && !errors.Is(err, ErrNotAcquired):
		return nil, store.ErrSessionOver
	}
	return nil, err
}

// hold relies on the lock that the database has given to an attempt, unless that came too late.
func (c *Client) hold(ctx context.Context, claim *ledger.Claim, got *store.Answer) error {
	if got.Taken() {
		c.ledger.Allow(claim.Grant, got.Grant, got.Asked)
	}
	if c.ledger.Hold(ctx, claim) {
		c.report.record(claim, history.Granted, "")
		return nil
	}
	got.Left = store.Something
	if took, late := claim.TooLate(c.config.Clock.Now()); late {
		return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
			"the grant took %v: the database, or this machine, is too slow for a lease of %v", took,
			claim.Request.Lease,
		))
	}
	return store.ErrSessionOver
}

// undo ends an attempt that failed, with what it has left in the database.
func (c *Client) undo(g *ledger.Grant, got store.Answer) {
	switch got.Left {
	case store.Settled:
	case store.Nothing:
		c.ledger.Finish(g, true)
	default:
		c.ledger.AbandonAfter(g, got.Left, got.Answered)
	}
}

// contend requests a name that is not plainly free. An owner that outlives its process first tries
// to take over its own lock. TryLock reads the name (peek). Lock joins the queue, and the claim is
// that of another attempt from then on, where requests wait together.
func (a *attempt) contend(ctx context.Context, claim *ledger.Claim) (store.Answer, error) {
	if a.owner.Explicit && a.r.Units == 0 {
		if answer, err := claim.Grant.In.Reenter(ctx, a.r); answer.Taken() || err != nil {
			return answer, err
		}
	}
	if !a.wait {
		return a.peek(ctx, claim.Grant.In)
	}
	_, under := a.owners.In(ctx)
	holding := under || !a.owner.Anonymous()
	if holding {
		if err := a.ledger.Show(ctx, a.owner); err != nil {
			return store.Answer{}, err
		}
	}
	return store.Answer{Left: store.Settled}, a.ledger.Join(ctx, claim, holding)
}

// peek reads a name before it takes it, so that finding a lock held costs no write. It first
// removes expired holders and waiters.
func (a *attempt) peek(ctx context.Context, s *store.Session) (store.Answer, error) {
	var none store.Answer
	var state driver.State
	swept := false
	for fails := 0; fails < 2; {
		var err error
		if state, err = a.store.Look(ctx, "", a.r.Name); err != nil {
			return none, err
		}
		row := state.Row()
		free := row.Free(a.r.Units, a.r.Of, 0)
		if gone := overdue(state); gone != nil && !free {
			taken, err := s.TakeOver(ctx, a.r.Name, *gone)
			if err != nil && !errors.Is(err, driver.ErrBusy) {
				return none, err
			}
			if err != nil {
				return none, a.notAcquired(state, err)
			}
			if !taken.Done() || len(taken.Next) > 0 { // another session has freed it, or the holder lives
				fails++
			}
			continue // there may be more of them
		}
		if a.ledger.Undone(ctx, state.Holder.Attempt) {
			continue // the holder was an earlier attempt of this client
		}
		if state.Holder.Session == s.ID && !a.ledger.Knows(state.Holder.Attempt) {
			fails++
			continue // another earlier attempt, undone after the name was read
		}
		capacity, collides := row.Joined(a.r.Of)
		switch {
		case collides:
			return none, fmt.Errorf("%w: it has %d, and was asked for as one of %d", driver.ErrCapacity, capacity,
				a.r.Of)
		case !free && !swept && a.sessions.Sweep(ctx):
			swept = true
			continue
		case !free:
			return none, a.notAcquired(state, nil)
		}
		if answer, err := s.Take(ctx, a.r, false); answer.Taken() || err != nil {
			return answer, err
		}
		fails++
	}
	return none, a.notAcquired(state, nil)
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
