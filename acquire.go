package dblock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

var (
	errSessionOver = errors.New("the session ended while waiting")
	errAgain       = errors.New("the name's row is gone, or nobody has the name any more")
	errPlaceGone   = errors.New("the place in the queue is gone")
)

// acquire is Lock, and with wait false TryLock.
func (c *Client[TX]) acquire(ctx context.Context, op, name string, options []LockOption, wait bool) (*Lock[TX], error) {
	if ctx == nil {
		return nil, &LockError{op, name, fmt.Errorf("%w: the context is nil", ErrInvalidOption)}
	}
	config, metadata, err := lockConfigOf(name, options)
	if err != nil {
		return nil, &LockError{op, name, err}
	}
	if ctx.Err() != nil {
		return nil, &LockError{op, name, context.Cause(ctx)}
	}
	if err := c.begin(); err != nil {
		return nil, &LockError{op, name, err}
	}
	defer c.calls.Done()
	o := ownerOf(ctx, c, c.config.host, config.owner)
	var h *hold
	if err = c.allow(config); err == nil && c.keeper != nil {
		h, err = c.acquireNative(ctx, name, o, config.shared(), wait)
	} else if err == nil {
		h, err = c.obtain(ctx, config.request(name, metadata, wait), o, wait)
	}
	if err != nil {
		return nil, &LockError{op, name, err}
	}
	return &Lock[TX]{client: c, hold: h}, nil
}

// request is what is asked of the engine.
func (c *lockConfig) request(name, metadata string, wait bool) driver.Request {
	return driver.Request{
		Name: name, Lease: c.lease, Metadata: metadata, MinHold: c.minHold, Units: c.units, Of: c.of, Wait: wait,
	}
}

// obtain tries until it holds the name, or until trying again is of no use.
func (c *Client[TX]) obtain(ctx context.Context, r driver.Request, o owner, wait bool) (*hold, error) {
	if err := c.ownPermits(ctx, r, o); err != nil {
		return nil, err
	}
	if r.Units == 0 || r.Of == driver.Readers { // permits are not entered again
		gate := gateKey{r.Name, o}
		if !c.gates.enter(ctx, gate, wait) {
			return nil, notAcquired(driver.State{}, ctx.Err())
		}
		defer c.gates.leave(gate)
	}
	r.Host, r.Thread = o.host, o.thread
	var away time.Duration // since when the database cannot be reached
	busy := false          // somebody was seen: the name's row was locked, or it had a place in the queue
	for tries := 1; ; tries++ {
		if h, entered, err := c.enter(ctx, r, o); err != nil && !errors.Is(err, ErrLost) {
			return nil, err
		} else if entered {
			return h, nil
		}
		h, err := c.try(ctx, r, o, wait)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, ErrNotAcquired):
			return nil, err
		case ctx.Err() != nil && (busy || errors.Is(err, driver.ErrBusy)):
			return nil, notAcquired(driver.State{}, ended(ctx, err))
		case ctx.Err() != nil:
			return nil, c.unseen(ctx, err)
		case errors.Is(err, ErrSchema):
			if which := c.checkSchema(ctx); which != nil {
				return nil, which
			}
			return nil, err
		case errors.Is(err, driver.ErrBusy) && !wait:
			return nil, notAcquired(driver.State{}, err)
		case errors.Is(err, ErrUnavailable):
			now := c.config.clock()
			if away == 0 {
				away = now
			}
			if !c.known() || now-away > c.config.ttl || (!wait && tries > 2) {
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
			away = 0
			busy = busy || errors.Is(err, errPlaceGone)
		default:
			return nil, err
		}
		pause(ctx, min(time.Duration(tries)*5*time.Millisecond, 200*time.Millisecond))
	}
}

// unseen is the end of a context before it was known whether anybody has the name or waits for it.
func (c *Client[TX]) unseen(ctx context.Context, err error) error {
	if why := c.exhausted(); why != "" && (err == context.Canceled || err == context.DeadlineExceeded) { // no statement says more
		return fmt.Errorf("%w%s: %w", ErrUnavailable, why, ended(ctx, err))
	}
	return fmt.Errorf("%w: no answer before the context ended: %w", ErrUnavailable, ended(ctx, err))
}

// ownPermits refuses what would wait for permits that its own caller has.
func (c *Client[TX]) ownPermits(ctx context.Context, r driver.Request, o owner) error {
	if _, under := ctx.Value(ownerKey{c}).(owner); !under {
		return nil
	}
	c.mu.Lock()
	mine := c.books.units(ctx, r.Name, o)
	c.mu.Unlock()
	switch {
	case mine == 0:
		return nil
	case r.Units == 0 || r.Of == driver.Readers || mine+r.Units > r.Of:
		return selfDeadlock(o, r.Name, r.Units)
	}
	return nil
}

// try makes one attempt in the session that is alive now.
func (c *Client[TX]) try(ctx context.Context, r driver.Request, o owner, wait bool) (*hold, error) {
	if c.background.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.answering, func() { cancel(ErrClosed) })()
	h, err := c.attempt(ctx, r, o, wait)
	if err != nil && c.background.Err() != nil {
		return nil, ErrClosed
	}
	return h, err
}

// attempt sends one attempt, and undoes it where that is called for.
func (c *Client[TX]) attempt(ctx context.Context, r driver.Request, o owner, wait bool) (*hold, error) {
	var l *life
	living := c.living
	if !wait {
		living = c.tryLiving
	}
	err := c.statement(ctx, func(ctx context.Context) (err error) {
		l, err = living(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Session, r.Attempt = l.ID, rand.Text()
	c.claim(r.Attempt)
	got, err := c.send(ctx, l, r, o, wait)
	if err == nil {
		if h, ok := c.hold(ctx, l, r, o, got.grant, got.asked); ok {
			return h, nil
		}
		err, got.left = errSessionOver, something
		if now := c.config.clock(); tooLate(got.grant.Lease, got.asked, now) {
			err = driver.Fail(ErrUnavailable, fmt.Errorf("the grant took %v: the database, or this machine, is too slow for a lease of %v", now-got.asked, r.Lease))
		}
	}
	switch got.left {
	case nothing:
		c.unclaim(r.Attempt)
	default:
		c.abandon(l, r.Name, r.Attempt, got.left == unsure)
	}
	if l.Context().Err() != nil && !errors.Is(err, ErrNotAcquired) {
		return nil, errSessionOver
	}
	return nil, err
}

// residue is what an attempt that failed may have left in the database.
type residue int

const (
	nothing   residue = iota
	something         // a place in the queue, or by now the lock
	unsure            // the same, and its statement may even still be on its way
)

// residueOf judges by the error of a statement that might have taken the lock or a place in the
// queue.
func residueOf(err error) residue {
	for _, refused := range []error{driver.ErrRetry, driver.ErrBusy, driver.ErrSchema, driver.ErrReadOnly, driver.ErrConfig} {
		if errors.Is(err, refused) {
			return nothing
		}
	}
	return unsure
}

// receipt is what came of an attempt: a grant, and the clock before the statement was sent that
// told of it; or what is left.
type receipt struct {
	grant driver.Grant
	asked time.Duration
	left  residue
}

// send tries the ways to a lock in turn: the single statement that takes a free name, unless others
// were seen waiting for it; for an owner that outlives its process, the way back into its own lock;
// the queue.
func (c *Client[TX]) send(ctx context.Context, l *life, r driver.Request, o owner, wait bool) (_ receipt, err error) {
	if !c.isContended(r.Name) {
		got, taken, err := c.take(ctx, r)
		if taken || err != nil {
			return got, err
		}
		defer func() { // whatever comes of it, somebody was seen
			if err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired) {
				err = notAcquired(driver.State{}, ended(ctx, err))
			}
		}()
	}
	if o.explicit && r.Units == 0 {
		got := receipt{asked: c.config.clock()}
		var back bool
		err := c.statement(ctx, func(ctx context.Context) (err error) {
			got.grant, back, err = c.engine.Reenter(ctx, r)
			return err
		})
		if err != nil {
			got.left = residueOf(err)
		}
		if back || err != nil {
			return got, err
		}
	}
	if !wait {
		return c.peek(ctx, l, r)
	}
	return c.queue(ctx, l, r)
}

func (c *Client[TX]) take(ctx context.Context, r driver.Request) (got receipt, taken bool, err error) {
	got.asked = c.config.clock()
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, taken, err = c.engine.Take(ctx, r)
		return err
	})
	if err != nil {
		got.left = residueOf(err)
	} else if !taken {
		c.mu.Lock()
		c.note(r.Name)
		c.mu.Unlock()
	}
	return got, taken, err
}

// peek looks at a name before it touches it: to find a lock held costs no write. Holders and
// waiters that are over their time make way.
func (c *Client[TX]) peek(ctx context.Context, l *life, r driver.Request) (receipt, error) {
	var state driver.State
	for fails := 0; fails < 2; {
		var err error
		if state, err = c.look(ctx, l, r.Name); err != nil {
			return receipt{}, err
		}
		if gone := overdue(state); gone != nil && !free(state, r) {
			freed, err := c.reclaim(ctx, l, r.Name, *gone)
			if err != nil && !errors.Is(err, driver.ErrBusy) {
				return receipt{}, err
			}
			if !freed {
				return receipt{}, notAcquired(state, err)
			}
			continue // there may be more of them
		}
		if c.undone(ctx, state.Holder.Attempt) {
			continue // it was this client's own, from before
		}
		if state.Holder.Session == l.ID && !c.claimed(state.Holder.Attempt) {
			fails++
			continue // likewise, and it was undone since the look
		}
		switch {
		case collides(state, r):
			return receipt{}, fmt.Errorf("%w: it has %d, and was asked for as one of %d", ErrCapacity, state.Capacity, r.Of)
		case !free(state, r):
			return receipt{}, notAcquired(state, nil)
		}
		if got, taken, err := c.take(ctx, r); taken || err != nil {
			return got, err
		}
		fails++
	}
	return receipt{}, notAcquired(state, nil)
}

// free reports whether Take would find room for a request.
func free(s driver.State, r driver.Request) bool {
	whole := s.Holder.Session == "" || s.Sharing > 0
	switch {
	case !whole || s.Waiters > 0 || s.Rest > 0:
		return false
	case r.Units == 0:
		return s.Sharing == 0
	}
	return s.Sharing == 0 || s.Capacity == r.Of && s.Used+r.Units <= r.Of
}

// collides reports whether a request wants units of another number than there are.
func collides(s driver.State, r driver.Request) bool {
	return r.Units > 0 && s.Capacity > 0 && s.Capacity != r.Of && (s.Sharing > 0 || s.Waiters > 0)
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

func (c *Client[TX]) look(ctx context.Context, l *life, name string) (state driver.State, err error) {
	err = c.statement(ctx, func(ctx context.Context) error {
		states, err := c.engine.Look(ctx, l.ID, []string{name})
		if err == nil && len(states) > 0 {
			state = states[0]
		}
		return err
	})
	return state, err
}

// reclaim takes a name from a holder that is over its time, and reports whether a waiter
// has got nothing by it.
func (c *Client[TX]) reclaim(ctx context.Context, l *life, name string, holder driver.Holder) (freed bool, err error) {
	err = c.statement(ctx, func(ctx context.Context) error {
		asked := c.config.clock()
		next, taken, err := c.engine.Reclaim(ctx, l.ID, name, holder)
		l.hand(name, next, asked, err)
		freed = taken && len(next) == 0
		if taken && holder.Grant.Token != 0 {
			c.recordExpired(name, holder)
		}
		return err
	})
	return freed, err
}

// queue joins the end of the queue, and waits there without a connection.
func (c *Client[TX]) queue(ctx context.Context, l *life, r driver.Request) (receipt, error) {
	w := l.hub.Add(r.Name, r.Attempt)
	defer l.hub.Remove(w)
	got := receipt{asked: c.config.clock()}
	var outcome driver.Outcome
	err := c.statement(ctx, func(ctx context.Context) (err error) {
		got.grant, outcome, err = c.engine.Enqueue(ctx, r)
		return err
	})
	switch {
	case err != nil:
		got.left = residueOf(err)
		return got, err
	case outcome == driver.Granted:
		return got, nil
	case outcome == driver.Gone:
		c.mu.Lock()
		delete(c.contended, r.Name)
		c.mu.Unlock()
		return got, errAgain
	}
	l.hub.Queued(w)
	suspicion := l.deadlock.Watch(r.Attempt)
	defer l.deadlock.Forget(suspicion)
	select {
	case answer := <-w.C:
		if !answer.Granted {
			return got, errPlaceGone
		}
		return receipt{grant: answer.Grant, asked: answer.Asked}, nil
	case cycle := <-suspicion.C:
		got.left = something
		return got, deadlocked(cycle)
	case <-l.Context().Done():
		return got, errSessionOver
	case <-c.background.Done():
		got.left = something
		return got, ErrClosed
	case <-ctx.Done():
		state, _ := l.hub.State(r.Name)
		got.left = something
		return got, notAcquired(state, context.Cause(ctx))
	}
}

func (c *Client[TX]) isContended(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contended[name]
}
