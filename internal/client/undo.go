package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/wait"
)

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation. What is
// still to be answered is waited for. MUST be called within a call.
func (c *Client) abandon(s *clientSession, k *claim, unsure bool) {
	done := make(chan struct{})
	c.registry.mu.Lock()
	c.registry.move(k, abandon)
	k.undone = done
	c.registry.mu.Unlock()
	c.underWay.Go(func() {
		defer close(done)
		defer c.registry.transition(k, finish)
		if k.answered != nil {
			<-k.answered
		}
		c.giveBack(s, k)
		if unsure {
			s.Check()
		}
	})
}

// giveBack tries until the attempt has nothing any more, or its session ends: no error may leave a
// name held by nobody that knows of it.
func (c *Client) giveBack(s *clientSession, k *claim) {
	said := false
	for tries := 1; s.Context().Err() == nil && c.tidying.Err() == nil; tries++ {
		err := c.leave(s, k)
		if err == nil {
			return
		}
		longest := 500 * time.Millisecond
		if !c.transient(err) {
			if longest = c.config.TTL / 5; !said {
				c.config.Log.Warn("dblock: giving back fails, and is tried until the session ends", "name", k.name, "error", err)
			}
			said = true
		}
		if c.closing() && (said || errors.Is(err, driver.ErrBusy) && tries > 20) {
			return // it ends with the session
		}
		pause(c.tidying, min(time.Duration(tries)*20*time.Millisecond, longest))
	}
}

// leave gives back once whatever an attempt has got, together with others that are given back
// meanwhile.
func (c *Client) leave(s *clientSession, k *claim) error {
	if k.run != nil {
		return c.leaveRun(s, k)
	}
	if done, alone := c.undos.Alone(); alone {
		defer done()
		return c.leaveAlone(undo{s, k})
	}
	failed, err := c.undos.Do(c.tidying, undo{s, k})
	return cmp.Or(err, failed)
}

// leaveRun gives back what the member of a run has got: the lock goes to the next member, or with
// the last of them the whole run is released.
func (c *Client) leaveRun(s *clientSession, k *claim) error {
	passed, err := c.passOn(c.tidying, k)
	if passed || err != nil {
		return err
	}
	if !k.run.Releasing() {
		return c.leaveAlone(undo{s, k})
	}
	_, left, err := c.vacate(c.tidying, s, driver.Release(driver.Held{Name: k.name, Session: s.ID, Token: k.run.Range.Last}, true))
	switch {
	case err != nil:
		return err
	case !left:
		c.dropRun(s, k.run)
		return c.leaveAlone(undo{s, k})
	}
	c.releasedRun(k)
	return nil
}

// dropRun ends a run that the database has taken from its session. Break makes the members wait
// again, and those that had the lock before do not wait any more. MUST be called within a call.
func (c *Client) dropRun(s *clientSession, r *wait.Run) {
	for _, attempt := range r.End() {
		c.abandon(s, c.registry.known(r.Name, attempt), false)
	}
}

func (c *Client) leaveAlone(u undo) error {
	_, _, err := c.vacate(c.tidying, u.of, driver.Undo(u.of.ID, u.claim.name, u.claim.attempt))
	return err
}

// leaveTogether gives back many attempts, and returns what failed for each: first the places that
// wait in one queue; then, of what the database still has, the locks without waiters; the rest one
// by one.
func (c *Client) leaveTogether(all []undo) (failed []error, _ error) {
	failed = make([]error, len(all))
	type queue struct {
		of   *clientSession
		name string
	}
	queues := map[queue][]string{}
	for _, u := range all {
		q := queue{u.of, u.claim.name}
		queues[q] = append(queues[q], u.claim.attempt)
	}
	names := map[*clientSession][]string{}
	stuck := map[queue]error{} // what failed for a queue stops no other
	for q, attempts := range queues {
		if len(attempts) > 1 {
			if err := c.leaveQueue(q.of, q.name, attempts); err != nil {
				stuck[q] = err
				continue
			}
		}
		names[q.of] = append(names[q.of], q.name)
	}
	has := map[string]driver.Held{} // by attempt, what the database has of it; a place has no token
	for s, names := range names {
		states, err := c.lookAt(c.tidying, s.ID, names)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			for _, attempt := range state.Queued {
				has[attempt] = driver.Held{Name: state.Name, Session: s.ID}
			}
			for _, own := range state.Granted {
				if own.Grant.Run.Last != 0 { // with its token others would lose the lock too
					has[own.Attempt] = driver.Held{Name: state.Name, Session: s.ID}
					continue
				}
				has[own.Attempt] = driver.Held{Name: state.Name, Session: s.ID, Token: own.Grant.Token, Shared: state.Sharing > 0}
			}
		}
	}
	var held []driver.Held
	var rest, of []int // indexes in all: of what is left, and of each in held
	for i, u := range all {
		failed[i] = stuck[queue{u.of, u.claim.name}]
		switch h, there := has[u.claim.attempt]; {
		case there && h.Token != 0:
			held, of = append(held, h), append(of, i)
		case there:
			rest = append(rest, i)
		}
	}
	for from := 0; from < len(held); from += maxExchange {
		part := held[from:min(from+maxExchange, len(held))]
		var released []bool
		err := c.statement(c.tidying, func(ctx context.Context) (err error) {
			_, released, err = c.engine.Batch(ctx, nil, part)
			return err
		})
		for i := range part {
			if err != nil || !released[i] {
				rest = append(rest, of[from+i])
			}
		}
	}
	for i, err := range parallel(len(rest), func(i int) error { return c.leaveAlone(all[rest[i]]) }) {
		failed[rest[i]] = err
	}
	return failed, nil
}

// leaveQueue gives up places in one queue.
func (c *Client) leaveQueue(s *clientSession, name string, attempts []string) error {
	asked := c.config.Clock.Now()
	var next []driver.Handoff
	err := c.statement(c.tidying, func(ctx context.Context) (err error) {
		next, err = c.engine.Leave(ctx, s.ID, name, attempts)
		return err
	})
	s.deliver(name, next, asked, err)
	return err
}

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none.
func (c *Client) undone(ctx context.Context, attempt string) bool {
	c.registry.mu.Lock()
	k := c.registry.claims[attempt]
	if k == nil || k.state != Undoing {
		c.registry.mu.Unlock()
		return false
	}
	done := k.undone
	c.registry.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
