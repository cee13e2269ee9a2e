package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/store"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/wait"
)

// queueTogether joins the queue of a name with the session's other requests, and waits there.
func (c *Client) queueTogether(ctx context.Context, s *store.Session, r *driver.Request) (*receipt, error) {
	x := c.cohorts
	m, first := x.add(*r)
	if first {
		c.store.Go(func() { c.ask(s, r.Name) })
	}
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	var err error
	select {
	case got := <-m.turn:
		return c.receiptOf(s, got), got.err
	case <-s.Context().Done():
		err = store.ErrSessionOver
	case <-c.store.Background.Done():
		err = ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
		if x.queued(m) || c.registry.occupied(r.Name) {
			err = c.waitedFor(s, r.Name, err)
		}
	}
	switch left, vacant := x.leave(m); {
	case vacant:
		c.abandon(s, m.cohort.attempt, false)
	case !left:
		if got := <-m.turn; got.err == nil {
			if passed, _ := x.pass(got.cohort, func() {}); !passed {
				x.end(got.cohort)
				c.abandon(s, got.cohort.attempt, false)
			}
		}
	}
	return &receipt{}, err
}

// receiptOf is what came of the request of a member.
func (c *Client) receiptOf(s *store.Session, got turn) *receipt {
	return &receipt{Answer: store.Answer{Grant: got.grant, Asked: got.asked}, cohort: got.cohort, token: got.token, bereave: func() { c.bereave(s, got.cohort) }}
}

// waitedFor says what was last seen of a name that was waited for.
func (c *Client) waitedFor(s *store.Session, name string, cause error) error {
	state, _ := s.Hub.State(name)
	return c.notAcquired(state, cause)
}

// ask sends what has come for a name, until there is nothing.
func (c *Client) ask(s *store.Session, name string) {
	for {
		c.holdBack(s, name)
		of, r := c.cohorts.next(place{s.ID, name}, c.newAttempt(name))
		if of == nil {
			return
		}
		c.joinTogether(s, of, &r)
	}
}

// Requests are held back for so long at most, and for a moment after each end of what holds them
// back, in which the one that had the lock comes back itself.
const (
	lingering = 5 * time.Millisecond
	moment    = 200 * time.Microsecond
)

// holdBack has the requests for a name linger while a cohort of the session has it: its members
// come back soon, and join the queue together again. Without that cohorts fall apart.
func (c *Client) holdBack(s *store.Session, name string) {
	late := make(chan struct{})
	var stop func() bool
	for {
		served := c.cohorts.served(place{s.ID, name})
		if served == nil {
			return
		}
		if stop == nil {
			stop = c.config.Clock.Alarm(c.config.Clock.Now()+lingering, func() { close(late) })
			defer stop()
		}
		select {
		case <-served:
			store.Pause(c.store.Background, moment)
		case <-late:
			return
		case <-s.Context().Done():
			return
		case <-c.store.Background.Done():
			return
		}
	}
}

// newAttempt makes the attempt of a cohort.
func (c *Client) newAttempt(name string) func() *attempt {
	return func() *attempt { return c.registry.request(name, deadlock.NewAttempt("")) }
}

// joinTogether sends the request of a cohort. No single caller's context ends it.
func (c *Client) joinTogether(s *store.Session, of *cohort, r *driver.Request) {
	w := s.Hub.Add(r.Name, r.Attempt)
	got, outcome, err := s.Join(c.store.Tidying, r)
	switch {
	case store.Refusal(err): // of the request of the first member, which the others have shared
		c.cohorts.dismissFirst(of, err)
		c.fail(s, of, store.ErrAgain, false)
	case err != nil:
		c.fail(s, of, err, store.ResidueOf(err) == store.Unsure)
	case outcome == driver.Queued:
		c.queueUp(s, of, w)
		return
	default:
		c.grantTogether(s, of, got.Grant, got.Asked)
	}
	s.Hub.Remove(w)
}

// queueUp waits for the grant of a cohort that has a place in the queue.
func (c *Client) queueUp(s *store.Session, of *cohort, w *wait.Waiter) {
	if !c.cohorts.queue(of) {
		s.Hub.Remove(w)
		c.abandon(s, of.attempt, false)
		return
	}
	s.Hub.Queued(w)
	c.store.Go(func() {
		defer s.Hub.Remove(w)
		select {
		case answer := <-w.C:
			if answer.Granted {
				c.grantTogether(s, of, answer.Grant, answer.Asked)
			} else {
				c.fail(s, of, store.ErrPlaceGone, false)
			}
		case <-s.Context().Done():
			c.fail(s, of, store.ErrSessionOver, false)
		case <-of.over:
		}
	})
}

// grantTogether gives the lock to the first member of a cohort, or back where all have left.
func (c *Client) grantTogether(s *store.Session, of *cohort, grant driver.Grant, asked time.Duration) {
	if !c.cohorts.begin(of, grant, asked) {
		c.abandon(s, of.attempt, false)
	}
}

// fail tells the members that are left why they get nothing. unsure: their statement may still be
// on its way.
func (c *Client) fail(s *store.Session, of *cohort, err error, unsure bool) {
	c.cohorts.dismiss(of, err)
	if unsure {
		c.abandon(s, of.attempt, true)
	} else {
		c.registry.transition(of.attempt, finish)
	}
}

// detach makes a hold the only one of its cohort, in the database too, with its own owner: whatever
// others must see of the present member, or change of it alone, comes after that. The members
// behind it are a cohort of their own from then on, at the head of the queue. It is repeated until
// an answer is known. The channel is closed then; nil: the hold is alone, or was passed on.
func (c *Client) detach(s *store.Session, h *hold) <-chan struct{} {
	x, of := c.cohorts, h.cohort
	if of == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case of.alone, of.present != h.mode.Load().token:
		return nil
	case of.detaching == nil:
		of.detaching = make(chan struct{})
		d := c.detachment(s, h)
		c.store.Go(func() { c.sendDetachment(s, h, d) })
	}
	return of.detaching
}

// detachment says how the database is to detach a hold. MUST be called with the mu of the session's
// cohorts locked.
func (c *Client) detachment(s *store.Session, h *hold) driver.Detachment {
	rest := h.cohort.split(c.newAttempt(h.name), func(attempt string) *wait.Waiter { return s.Hub.Add(h.name, attempt) })
	return driver.Detachment{Token: h.mode.Load().token, Host: h.owner.Host, Thread: h.owner.Thread, Behind: rest}
}

// detachmentTx is the detachment of a hold that a transaction is to make. Those behind it wait
// until it is known what came of the transaction: Unlock finds out, and otherwise a look tells when
// the hold has ended.
func (c *Client) detachmentTx(s *store.Session, h *hold) driver.Detachment {
	c.cohorts.mu.Lock()
	defer c.cohorts.mu.Unlock()
	if h.cohort == nil || h.cohort.alone {
		return driver.Detachment{}
	}
	return c.detachment(s, h)
}

// bereave has those behind a member that has lost the lock ask anew, unless the database may have
// them in the queue: then a look tells.
func (c *Client) bereave(s *store.Session, of *cohort) {
	c.cohorts.end(of)
	c.cohorts.dismiss(of, store.ErrAgain)
	if c.store.Begin() == nil {
		defer c.store.Done()
		c.resume(s, of, true)
	}
}

func (c *Client) sendDetachment(s *store.Session, h *hold, d driver.Detachment) {
	held := h.held()
	defer c.cohorts.settled(h.cohort)
	within, cancel := contract.UntilClosed(c.store.Tidying, s.Context())
	defer cancel()
	err := c.store.Retry(within, store.Background, func() error {
		err := s.Change(c.store.Tidying, h.name, func(n *protocol.Name) error { return protocol.Detach(n, held, d) })
		switch {
		case err == nil:
			c.detaching.Worked()
			m := *h.mode.Load()
			m.last = m.token
			h.mode.Store(&m)
		case errors.Is(err, driver.ErrNotHeld):
			c.lose(h, errDisowned)
			return nil // a transaction may have detached it, too
		case !c.store.Transient(err) && within.Err() == nil:
			c.detaching.Failed(err, "name", h.name)
		}
		return err
	})
	c.resume(s, h.cohort, err == nil)
}

// resume has the members behind a detached one wait at the head of the queue, if the database has
// them there, and otherwise ask anew.
func (c *Client) resume(s *store.Session, of *cohort, queued bool) {
	rest, place := c.cohorts.resume(of)
	switch {
	case rest == nil:
	case queued:
		c.queueUp(s, rest, place)
	default:
		s.Hub.Remove(place)
		c.fail(s, rest, store.ErrAgain, true)
	}
}
