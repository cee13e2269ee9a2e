package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/wait"
)

// busyTries is how often TryLock comes to a row that is locked, for some half a second: it may be
// locked by a transaction of dblock's own, which is short. What keeps it for longer is the
// application's, and is in the way as a holder is.
const busyTries = 10

// acquire tries until it holds the name, or until trying again is of no use.
func (c *Client) acquire(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	if err := c.checkPermits(ctx, r, o); err != nil {
		return nil, err
	}
	if r.Units == 0 || r.Of == driver.Readers { // permits are not entered again
		k := entry{r.Name, o}
		if !c.entries.lock(ctx, k, wait) {
			return nil, c.refused(ctx.Err())
		}
		defer c.entries.unlock(k)
	}
	r.Host, r.Thread, r.Wait = o.Host, o.Thread, wait
	var away absence
	if !wait {
		away = c.absent()
	}
	busy := false // a holder or a waiter was seen: the name's row was locked, or it had a place in the queue
	for tries := 1; ; tries++ {
		if h, entered, err := c.reenter(ctx, r, o); err != nil && !errors.Is(err, ErrLost) {
			return nil, err
		} else if entered {
			return h, nil
		}
		if wait {
			if err := c.checkEnclosing(ctx, r, o); err != nil {
				return nil, err
			}
		}
		h, err := c.tryAcquire(ctx, r, o, wait)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, driver.ErrBusy) && !wait && ctx.Err() == nil && tries < busyTries:
			c.registry.setContended(r.Name, true) // from now on look first: the look names the holder
		case errors.Is(err, ErrNotAcquired):
			return nil, err
		case ctx.Err() != nil && (busy || errors.Is(err, driver.ErrBusy)):
			return nil, c.refused(ended(ctx, err))
		case ctx.Err() != nil:
			return nil, c.unseen(ctx, err)
		case errors.Is(err, driver.ErrSchema):
			return nil, c.explain(ctx, err)
		case errors.Is(err, driver.ErrBusy) && !wait:
			return nil, c.refused(err)
		case away.tooLong(c, err):
			return nil, err
		case c.outage(err):
			if !c.begun() {
				return nil, err
			}
		case errors.Is(err, driver.ErrRetry), errors.Is(err, driver.ErrBusy):
			if errors.Is(err, driver.ErrBusy) {
				busy = true
				r.Wait = false // a long transaction: from now on only knock
			}
			if !wait && tries > 20 {
				return nil, err
			}
		case errors.Is(err, errSessionOver), errors.Is(err, errAgain), errors.Is(err, errPlaceGone):
			busy = busy || errors.Is(err, errPlaceGone)
		default:
			return nil, err
		}
		backOff(ctx, tries)
		if ctx.Err() != nil && !busy && c.outage(err) { // the next try would not say what is wrong
			return nil, c.unseen(ctx, err)
		}
	}
}

// checkPermits refuses what would wait for permits that its own caller has.
func (c *Client) checkPermits(ctx context.Context, r *driver.Request, o Owner) error {
	if _, under := c.owners.in(ctx); !under {
		return nil
	}
	mine, of := c.registry.units(ctx, r.Name, o)
	switch {
	case mine == 0:
		return nil
	case r.Units > 0 && r.Of != driver.Readers && r.Of != of:
		return fmt.Errorf("%w: Permits: asked for %d of %d, and held %d of %d: ask with the same number", ErrInvalidOption, r.Units, r.Of, mine, of)
	case r.Units == 0 || r.Of == driver.Readers || mine+r.Units > r.Of:
		return c.selfDeadlock(o, r.Name, r.Units)
	}
	return nil
}

// checkEnclosing refuses what would wait for a lock that its own caller has by another client of
// this process. Names of two databases are not in each other's way: the other client's session must
// have the lock here.
func (c *Client) checkEnclosing(ctx context.Context, r *driver.Request, o Owner) error {
	for _, by := range c.owners.elsewhere(ctx, r.Name) {
		beside := r.Units > 0 && by.units > 0 && r.Of == by.of && (r.Of == driver.Readers || r.Units+by.units <= r.Of)
		if beside || o.Explicit && o == by.Owner { // which takes over
			continue
		}
		if state, err := c.look(ctx, by.session, r.Name); err == nil && len(state.Granted) > 0 {
			cycle := deadlock.Cycle{{Host: o.Host, Thread: o.Thread, Name: r.Name, Units: r.Units, HeldHost: by.Host, HeldThread: by.Thread}}
			return fmt.Errorf("%w, by another client of this process: this one was called under the context of that lock", c.config.Deadlocked(cycle))
		}
	}
	return nil
}

// selfDeadlock is an owner that would wait for what it has itself.
func (c *Client) selfDeadlock(o Owner, name string, units int) error {
	return c.config.Deadlocked(deadlock.Cycle{{Host: o.Host, Thread: o.Thread, Name: name, Units: units, HeldHost: o.Host, HeldThread: o.Thread}})
}

// reenter counts one more entry of the same owner; false if there is nothing to enter any more.
func (c *Client) reenter(ctx context.Context, r *driver.Request, o Owner) (*hold, bool, error) {
	h := c.registry.owned(r.Name, o)
	if h == nil {
		return nil, false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := c.rows(h).settle(ctx, h); err != nil {
		return nil, false, err
	}
	m := h.mode.Load()
	switch {
	case h.entries == 0 || !c.registry.relies(h) || h.in.over() != nil:
		return nil, false, nil
	case m.shared() && r.Units == 0:
		return nil, false, fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", c.selfDeadlock(o, r.Name, 0))
	case m.shared() && r.Of != m.of:
		return nil, false, fmt.Errorf("%w: this owner reads it", driver.ErrCapacity)
	}
	if err := h.contradiction(r); err != nil {
		return nil, false, err
	}
	h.entries++
	return h, true, nil
}

// tryAcquire makes one attempt in the session that is alive now, and undoes it where that is called
// for.
func (c *Client) tryAcquire(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	if c.closing() {
		return nil, ErrClosed
	}
	ctx, cancel := contract.UntilClosed(ctx, c.answering)
	defer cancel()
	h, err := c.attempt(ctx, r, o, wait)
	if err != nil && c.closing() {
		return nil, ErrClosed
	}
	return h, err
}

// session returns the session that is alive now, and opens one where none is. Without wait it does
// not wait for a transaction which has locked the database: ErrBusy.
func (c *Client) session(ctx context.Context, wait bool) (*clientSession, error) {
	if s := c.sessions.use(); s != nil {
		return s, nil
	}
	open := c.sessions.open
	if !wait {
		open = c.sessions.tryOpen
	}
	var opened *clientSession
	err := c.statement(ctx, func(ctx context.Context) (err error) {
		opened, err = open(ctx)
		return err
	})
	return opened, err
}

func (c *Client) attempt(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	s, err := c.session(ctx, wait)
	if err != nil {
		return nil, err
	}
	r.Session, r.Attempt = s.ID, c.owners.attempt(ctx, o)
	k := c.registry.request(r.Name, r.Attempt)
	got, err := c.takeOrQueue(ctx, s, r, o, wait)
	if got.cohort != nil {
		c.registry.transition(k, finish)
		k = got.cohort.attempt
		r.Attempt = k.id
	}
	if err == nil {
		if h, ok := c.rely(ctx, s, k, r, o, got); ok {
			return h, nil
		}
		err, got.left = c.unreliable(r, got), something
		if got.cohort != nil {
			s.cohorts.end(got.cohort)
			s.cohorts.dismiss(got.cohort, errAgain)
		}
	}
	switch got.left {
	case nothing:
		c.registry.transition(k, finish)
	default:
		k.answered = got.answered
		c.abandon(s, k, got.left == unsure)
	}
	if s.Context().Err() != nil && !errors.Is(err, ErrNotAcquired) {
		return nil, errSessionOver
	}
	return nil, err
}

// unreliable is why a grant cannot be relied upon.
func (c *Client) unreliable(r *driver.Request, got *receipt) error {
	now := c.config.Clock.Now()
	if !tooLate(got.grant.Lease, got.asked, now) {
		return errSessionOver
	}
	return driver.Fail(driver.ErrUnavailable, fmt.Errorf("the grant took %v: the database, or this machine, is too slow for a lease of %v", now-got.asked, r.Lease))
}

// shared is what came of a request in a statement that several shared.
func shared(grant driver.Grant, asked time.Duration, err error) *receipt {
	got := &receipt{grant: grant, asked: asked}
	var left *coalesce.Left
	switch {
	case errors.As(err, &left) && left.Answered == nil: // it was never sent
	case err != nil:
		got.left = residueOf(err)
		if left != nil {
			got.answered = left.Answered
		}
	}
	return got
}

// takeOrQueue tries the ways to a lock in turn: the single statement that takes a free name, unless
// others were seen waiting for it; for an owner that outlives its process, the way back into its
// own lock; the queue.
func (c *Client) takeOrQueue(ctx context.Context, s *clientSession, r *driver.Request, o Owner, wait bool) (_ *receipt, err error) {
	if !c.registry.isContended(r.Name) && !s.cohorts.busy(r.Name) {
		got, taken, failed := c.takeSoon(ctx, s, r)
		if taken || failed != nil {
			return got, failed
		}
		defer func() { // whatever comes of it, a holder or a waiter was seen
			if err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) {
				err = c.refused(ended(ctx, err))
			}
		}()
	}
	if o.Explicit && r.Units == 0 {
		got, back, err := c.comeBack(ctx, r)
		if back || err != nil {
			return got, err
		}
	}
	if !wait {
		return c.peek(ctx, s, r)
	}
	return c.queue(ctx, s, r, o)
}

// takeSoon takes a name at once, or together with those for which the session's other goroutines
// ask meanwhile.
func (c *Client) takeSoon(ctx context.Context, s *clientSession, r *driver.Request) (got *receipt, taken bool, err error) {
	if r.Units > 0 {
		return c.take(ctx, r)
	}
	if done, alone := s.batcher.Alone(); alone {
		defer done()
		return c.take(ctx, r)
	}
	o, err := s.batcher.Do(ctx, change{take: *r})
	if err == nil && !o.done {
		c.registry.setContended(r.Name, true)
	}
	return shared(o.grant, o.asked, err), o.done, err
}

func (c *Client) take(ctx context.Context, r *driver.Request) (got *receipt, taken bool, err error) {
	got = &receipt{asked: c.config.Clock.Now()}
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, taken, err = c.engine.Take(ctx, *r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	} else if !taken {
		c.registry.setContended(r.Name, true)
	}
	return got, taken, err
}

// comeBack takes a lock over that the same owner has, in whatever process.
func (c *Client) comeBack(ctx context.Context, r *driver.Request) (got *receipt, back bool, err error) {
	got = &receipt{asked: c.config.Clock.Now()}
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		_, err = c.engine.Change(ctx, driver.How{Name: r.Name, Self: r.Session, Wait: r.Wait}, func(n *protocol.Name) (err error) {
			got.grant, back, err = protocol.Reenter(n, *r)
			return err
		})
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	}
	return got, back, err
}

// peek looks at a name before it touches it: to find a lock held costs no write. Holders and
// waiters that are over their time make way.
func (c *Client) peek(ctx context.Context, s *clientSession, r *driver.Request) (*receipt, error) {
	var state driver.State
	for fails := 0; fails < 2; {
		var err error
		if state, err = c.look(ctx, "", r.Name); err != nil {
			return &receipt{}, err
		}
		is := rowOf(state)
		if gone := overdue(state); gone != nil && !is.free(r) {
			freed, err := c.reclaim(ctx, s, r.Name, *gone)
			if err != nil && !errors.Is(err, driver.ErrBusy) {
				return &receipt{}, err
			}
			if err != nil {
				return &receipt{}, c.notAcquired(state, err)
			}
			if !freed { // another did it, or the holder lives
				fails++
			}
			continue // there may be more of them
		}
		if c.undone(ctx, state.Holder.Attempt) {
			continue // it was this client's own, from before
		}
		if state.Holder.Session == s.ID && !c.registry.knows(state.Holder.Attempt) {
			fails++
			continue // likewise, and it was undone since the look
		}
		capacity, collides := is.Joined(r.Of)
		switch {
		case collides:
			return &receipt{}, fmt.Errorf("%w: it has %d, and was asked for as one of %d", driver.ErrCapacity, capacity, r.Of)
		case !is.free(r):
			return &receipt{}, c.notAcquired(state, nil)
		}
		if got, taken, err := c.take(ctx, r); taken || err != nil {
			return got, err
		}
		fails++
	}
	return &receipt{}, c.notAcquired(state, nil)
}

// seen is the row of a name as a look shows it.
type seen struct {
	protocol.Row
	rests bool
}

func rowOf(s driver.State) seen {
	row := protocol.Row{Units: s.Used, Capacity: s.Capacity, Waiters: s.Waiters}
	if s.Sharing == 0 {
		row.Session = s.Holder.Session
	}
	return seen{row, s.Rest > 0}
}

// free reports whether a request is granted at once.
func (s seen) free(r *driver.Request) bool {
	_, collides := s.Joined(r.Of)
	return !collides && !s.rests && s.Waiters == 0 && s.Fits(r.Units, r.Of)
}

// overdue is a holder of the name that is over its time, if there is one.
func overdue(s driver.State) *driver.Holder {
	for _, h := range []driver.Holder{s.Holder, s.Head} {
		if h.Session != "" && h.Left <= 0 {
			return &h
		}
	}
	return nil
}

// queue joins the end of the queue, and waits there without a connection.
func (c *Client) queue(ctx context.Context, s *clientSession, r *driver.Request, o Owner) (*receipt, error) {
	s.hub.Ready(ctx)
	if c.batchable(ctx, r, o) {
		return c.queueTogether(ctx, s, r)
	}
	if err := c.show(ctx, o); err != nil {
		return &receipt{}, err
	}
	w := s.hub.Add(r.Name, r.Attempt)
	defer s.hub.Remove(w)
	got, outcome, err := c.join(ctx, r)
	if err == nil && outcome == driver.Queued {
		s.hub.Queued(w)
		if r.Lease != 0 { // others may have let theirs run out, of which nobody tells
			s.hub.Recheck(r.Name)
		}
		err = c.await(ctx, s, w, got)
	}
	return got, err
}

// await waits for the turn of a place in the queue.
func (c *Client) await(ctx context.Context, s *clientSession, w *wait.Waiter, got *receipt) error {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	suspicion := s.deadlock.Watch(w.Attempt)
	defer s.deadlock.Forget(suspicion)
	select {
	case answer := <-w.C:
		if !answer.Granted {
			return errPlaceGone
		}
		got.grant, got.asked = answer.Grant, answer.Asked
		return nil
	case <-s.Context().Done():
		return errSessionOver
	case cycle := <-suspicion.C:
		got.left = something
		return c.config.Deadlocked(cycle)
	case <-c.background.Done():
		got.left = something
		return ErrClosed
	case <-ctx.Done():
		got.left = something
		return c.waitedFor(s, w.Name, context.Cause(ctx))
	}
}

// batchable reports whether a request may be the member of a cohort: it is a plain one for the
// whole name, and its owner holds nothing that others could wait for.
func (c *Client) batchable(ctx context.Context, r *driver.Request, o Owner) bool {
	_, under := c.owners.in(ctx)
	return !under && !o.Explicit && o.errand == 0 && r.Units == 0 && r.Lease == 0 && r.MinHold == 0 && r.Metadata == ""
}

// show has the database show an owner as the holder of what it has as the member of a cohort,
// before it waits for another name: whoever looks for a deadlock reads that.
func (c *Client) show(ctx context.Context, o Owner) error {
	for _, h := range c.registry.crowded(o) {
		if err := c.rows(h).single(ctx, h); err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

// join sends a request that takes the lock or joins the queue.
func (c *Client) join(ctx context.Context, r *driver.Request) (got *receipt, outcome driver.Outcome, err error) {
	got = &receipt{asked: c.config.Clock.Now()}
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, outcome, err = c.engine.Join(ctx, *r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	}
	return got, outcome, err
}
