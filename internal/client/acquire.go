package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/queue"
	"github.com/dblock-go/dblock/internal/wait"
)

// busyTries is how often TryLock comes to a row that is locked, for some half a second: it may be
// locked by a transaction of dblock's own, which is short. What keeps it for longer is the
// application's, and is in the way as a holder is.
const busyTries = 10

// acquire tries until it holds the name, or until trying again is of no use.
func (t *tables) acquire(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	if err := t.checkPermits(ctx, r, o); err != nil {
		return nil, err
	}
	if r.Units == 0 || r.Of == driver.Readers { // permits are not entered again
		k := entry{r.Name, o}
		if !t.entries.lock(ctx, k, wait) {
			return nil, t.refused(ctx.Err())
		}
		defer t.entries.unlock(k)
	}
	r.Host, r.Thread, r.Wait = o.Host, o.Thread, wait
	var away absence
	if !wait {
		away = t.absent()
	}
	busy := false // a holder or a waiter was seen: the name's row was locked, or it had a place in the queue
	for tries := 1; ; tries++ {
		if h, entered, err := t.reenter(ctx, r, o); err != nil && !errors.Is(err, ErrLost) {
			return nil, err
		} else if entered {
			return h, nil
		}
		h, err := t.tryAcquire(ctx, r, o, wait)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, driver.ErrBusy) && !wait && ctx.Err() == nil && tries < busyTries:
			t.registry.setContended(r.Name, true) // from now on look first: the look names the holder
		case errors.Is(err, ErrNotAcquired):
			return nil, err
		case ctx.Err() != nil && (busy || errors.Is(err, driver.ErrBusy)):
			return nil, t.refused(ended(ctx, err))
		case ctx.Err() != nil:
			return nil, t.unseen(ctx, err)
		case errors.Is(err, driver.ErrSchema):
			return nil, t.explain(ctx, err)
		case errors.Is(err, driver.ErrBusy) && !wait:
			return nil, t.refused(err)
		case away.tooLong(t, err):
			return nil, err
		case t.outage(err):
			if !t.begun() || !wait && tries > 2 {
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
		pause(ctx, min(time.Duration(tries)*5*time.Millisecond, 200*time.Millisecond))
	}
}

// explain says what is wrong with the tables, where that can be found out.
func (t *tables) explain(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrSchema) {
		if which := t.schema(ctx); which != nil {
			return which
		}
	}
	return err
}

// checkPermits refuses what would wait for permits that its own caller has.
func (t *tables) checkPermits(ctx context.Context, r *driver.Request, o Owner) error {
	if _, under := t.owners.in(ctx); !under {
		return nil
	}
	mine, of := t.registry.units(ctx, r.Name, o)
	switch {
	case mine == 0:
		return nil
	case r.Units > 0 && r.Of != driver.Readers && r.Of != of:
		return fmt.Errorf("%w: Permits: asked for %d of %d, and held %d of %d: ask with the same number", ErrInvalidOption, r.Units, r.Of, mine, of)
	case r.Units == 0 || r.Of == driver.Readers || mine+r.Units > r.Of:
		return t.selfDeadlock(o, r.Name, r.Units)
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
	if err := h.grip.settle(ctx, h); err != nil {
		return nil, false, err
	}
	m := h.mode.Load()
	switch {
	case h.entries == 0 || h.ctx.Err() != nil || h.grip.over() != nil:
		return nil, false, nil
	case m.shared() && r.Units == 0:
		return nil, false, fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", c.selfDeadlock(o, r.Name, 0))
	case m.shared() && r.Of != m.of:
		return nil, false, fmt.Errorf("%w: this owner reads it", driver.ErrCapacity)
	}
	if err := h.contradiction(r); err != nil {
		return nil, false, err
	}
	if err := h.grip.entered(ctx, h, h.entries+1); err != nil {
		return nil, false, err
	}
	h.entries++
	return h, true, nil
}

// tryAcquire makes one attempt in the session that is alive now, and undoes it where that is called
// for.
func (t *tables) tryAcquire(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	if t.closing() {
		return nil, ErrClosed
	}
	ctx, cancel := untilClosed(ctx, t.answering)
	defer cancel()
	h, err := t.attempt(ctx, r, o, wait)
	if err != nil && t.closing() {
		return nil, ErrClosed
	}
	return h, err
}

// session returns the session that is alive now, and opens one where none is. Without wait it does
// not wait for a transaction which has locked the database: ErrBusy.
func (t *tables) session(ctx context.Context, wait bool) (*clientSession, error) {
	if s := t.sessions.alive(); s != nil {
		return s, nil
	}
	open := t.sessions.open
	if !wait {
		open = t.sessions.tryOpen
	}
	var opened *clientSession
	err := t.statement(ctx, func(ctx context.Context) (err error) {
		opened, err = open(ctx)
		return err
	})
	return opened, err
}

func (t *tables) attempt(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	s, err := t.session(ctx, wait)
	if err != nil {
		return nil, err
	}
	r.Session, r.Attempt = s.ID, t.owners.attempt(ctx, o)
	k := t.registry.request(r.Name, r.Attempt)
	got, err := t.takeOrQueue(ctx, s, r, o, wait)
	t.registry.joined(k, got.run)
	if err == nil {
		if h, ok := t.rely(ctx, s, k, rows{t, s}, r, o, got.grant, got.asked); ok {
			return h, nil
		}
		err, got.left = t.unreliable(r, got), something
	}
	switch got.left {
	case nothing:
		t.registry.transition(k, finish)
	default:
		k.answered = got.answered
		t.abandon(s, k, got.left == unsure)
	}
	if s.Context().Err() != nil && !errors.Is(err, ErrNotAcquired) {
		return nil, errSessionOver
	}
	return nil, err
}

// unreliable is why a grant cannot be relied upon.
func (t *tables) unreliable(r *driver.Request, got *receipt) error {
	now := t.config.Clock.Now()
	if !tooLate(got.grant.Lease, got.asked, now) {
		return errSessionOver
	}
	return driver.Fail(driver.ErrUnavailable, fmt.Errorf("the grant took %v: the database, or this machine, is too slow for a lease of %v", now-got.asked, r.Lease))
}

// receipt is what came of an attempt: a grant, and the clock before the statement was sent that
// told of it; or what is left.
type receipt struct {
	grant    driver.Grant
	asked    time.Duration
	left     residue
	answered <-chan struct{} // closed when a statement is answered that is still under way; nil: none is
	run      *wait.Run       // that the grant is part of; nil: of none
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
func (t *tables) takeOrQueue(ctx context.Context, s *clientSession, r *driver.Request, o Owner, wait bool) (_ *receipt, err error) {
	if !t.registry.isContended(r.Name) {
		got, taken, failed := t.takeSoon(ctx, s, r)
		if taken || failed != nil {
			return got, failed
		}
		defer func() { // whatever comes of it, a holder or a waiter was seen
			if err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) {
				err = t.refused(ended(ctx, err))
			}
		}()
	}
	if o.Explicit && r.Units == 0 {
		got, back, err := t.comeBack(ctx, r)
		if back || err != nil {
			return got, err
		}
	}
	if !wait {
		return t.peek(ctx, s, r)
	}
	return t.queue(ctx, s, r)
}

// takeSoon takes a name at once, or together with those for which the session's other goroutines
// ask meanwhile.
func (t *tables) takeSoon(ctx context.Context, s *clientSession, r *driver.Request) (got *receipt, taken bool, err error) {
	if r.Units > 0 {
		return t.take(ctx, r)
	}
	if done, alone := s.exchange.Alone(); alone {
		defer done()
		return t.take(ctx, r)
	}
	o, err := s.exchange.Do(ctx, change{take: *r})
	if err == nil && !o.done {
		t.registry.setContended(r.Name, true)
	}
	return shared(o.grant, o.asked, err), o.done, err
}

func (t *tables) take(ctx context.Context, r *driver.Request) (got *receipt, taken bool, err error) {
	got = &receipt{asked: t.config.Clock.Now()}
	err = t.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, taken, err = t.engine.Take(ctx, *r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	} else if !taken {
		t.registry.setContended(r.Name, true)
	}
	return got, taken, err
}

// comeBack takes a lock over that the same owner has, in whatever process.
func (t *tables) comeBack(ctx context.Context, r *driver.Request) (got *receipt, back bool, err error) {
	got = &receipt{asked: t.config.Clock.Now()}
	err = t.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, back, err = t.engine.Reenter(ctx, *r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	}
	return got, back, err
}

// peek looks at a name before it touches it: to find a lock held costs no write. Holders and
// waiters that are over their time make way.
func (t *tables) peek(ctx context.Context, s *clientSession, r *driver.Request) (*receipt, error) {
	var state driver.State
	for fails := 0; fails < 2; {
		var err error
		if state, err = t.look(ctx, "", r.Name); err != nil {
			return &receipt{}, err
		}
		is := queue.Of(state)
		if gone := overdue(state); gone != nil && !is.Free(*r) {
			freed, err := t.reclaim(ctx, s, r.Name, *gone)
			if err != nil && !errors.Is(err, driver.ErrBusy) {
				return &receipt{}, err
			}
			if err != nil {
				return &receipt{}, t.notAcquired(state, err)
			}
			if !freed { // another did it, or the holder lives
				fails++
			}
			continue // there may be more of them
		}
		if t.undone(ctx, state.Holder.Attempt) {
			continue // it was this client's own, from before
		}
		if state.Holder.Session == s.ID && !t.registry.claimed(state.Holder.Attempt) {
			fails++
			continue // likewise, and it was undone since the look
		}
		capacity, collides := is.Join(*r)
		switch {
		case collides:
			return &receipt{}, fmt.Errorf("%w: it has %d, and was asked for as one of %d", driver.ErrCapacity, capacity, r.Of)
		case !is.Free(*r):
			return &receipt{}, t.notAcquired(state, nil)
		}
		if got, taken, err := t.take(ctx, r); taken || err != nil {
			return got, err
		}
		fails++
	}
	return &receipt{}, t.notAcquired(state, nil)
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
func (t *tables) queue(ctx context.Context, s *clientSession, r *driver.Request) (*receipt, error) {
	r.Passable = r.Passable && !t.registry.isSlow(r.Name, t.config.Clock.Now())
	s.hub.Ready(ctx)
	w := s.hub.Add(r.Name, r.Attempt, r.Passable)
	got, outcome, err := t.join(ctx, s, r)
	switch {
	case err == nil && outcome == driver.Gone:
		t.registry.setContended(r.Name, false)
		err = errAgain
	case err == nil && outcome == driver.Queued:
		err = t.await(ctx, s, w, got)
	}
	if late, granted := s.hub.Remove(w); granted {
		got.run = late.Run
	}
	return got, err
}

// await waits for the turn of a place in the queue.
func (t *tables) await(ctx context.Context, s *clientSession, w *wait.Waiter, got *receipt) error {
	s.hub.Queued(w)
	suspicion := s.deadlock.Watch(w.Attempt)
	defer s.deadlock.Forget(suspicion)
	select {
	case answer := <-w.C:
		if !answer.Granted {
			return errPlaceGone
		}
		got.grant, got.asked, got.run = answer.Grant, answer.Asked, answer.Run
		return nil
	case <-s.Context().Done():
		return errSessionOver
	case cycle := <-suspicion.C:
		got.left = something
		return t.config.Deadlocked(cycle)
	case <-t.background.Done():
		got.left = something
		return ErrClosed
	case <-ctx.Done():
		got.left = something
		return t.waitedFor(s, w.Name, context.Cause(ctx))
	}
}

// waitedFor says what was last seen of a name that was waited for.
func (t *tables) waitedFor(s *clientSession, name string, cause error) error {
	state, _ := s.hub.State(name)
	return t.notAcquired(state, cause)
}

// join sends a request that joins a queue; for a whole name, while another is under way to the same
// queue, together with those of the session's other goroutines that join it meanwhile.
func (t *tables) join(ctx context.Context, s *clientSession, r *driver.Request) (got *receipt, outcome driver.Outcome, err error) {
	if r.Units == 0 {
		joining := s.joins.of(r)
		defer s.joins.done(r)
		done, alone := s.joins.alone(ctx, r, joining)
		if !alone {
			j, err := joining.Do(ctx, r)
			return shared(j.grant, j.asked, err), j.outcome, t.lingered(s, r.Name, joining, err)
		}
		defer done()
	}
	return t.enqueue(ctx, r)
}

// lingered is the error of a request that joined a queue with others. Where it lingered, others of
// its session were seen waiting.
func (t *tables) lingered(s *clientSession, name string, joining *joining, err error) error {
	var left *coalesce.Left
	if errors.As(err, &left) && left.Answered == nil && joining.lingering.Load() {
		return t.waitedFor(s, name, left.Cause)
	}
	return err
}

func (t *tables) enqueue(ctx context.Context, r *driver.Request) (got *receipt, outcome driver.Outcome, err error) {
	got = &receipt{asked: t.config.Clock.Now()}
	err = t.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, outcome, err = t.engine.Enqueue(ctx, *r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	}
	return got, outcome, err
}
