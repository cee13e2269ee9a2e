package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation. What is
// still to be answered is waited for. MUST be called within a call.
func (c *Client) abandon(s *clientSession, k *attempt, unsure bool) {
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
func (c *Client) giveBack(s *clientSession, k *attempt) {
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
func (c *Client) leave(s *clientSession, k *attempt) error {
	if done, alone := c.undos.Alone(); alone {
		defer done()
		return c.leaveAlone(undo{s, k})
	}
	failed, err := c.undos.Do(c.tidying, undo{s, k})
	return cmp.Or(err, failed)
}

// leaveAlone gives back one.
func (c *Client) leaveAlone(u undo) error {
	r := protocol.Undo(u.of.ID, u.attempt.name, u.attempt.id)
	r.Guarded = u.attempt.guarded.Load()
	_, _, err := c.remove(c.tidying, u.of, r)
	return err
}

// leaveTogether gives back many attempts, and returns what failed for each: what the database has
// as locks without waiters in one statement, and the rest one by one.
func (c *Client) leaveTogether(all []undo) (failed []error, _ error) {
	names := map[*clientSession][]string{}
	for _, u := range all {
		names[u.of] = append(names[u.of], u.attempt.name)
	}
	has := map[string]driver.Held{} // by attempt
	for s, names := range names {
		slices.Sort(names)
		states, err := c.lookAt(c.tidying, s.ID, slices.Compact(names))
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			for _, attempt := range state.Queued {
				has[attempt] = driver.Held{}
			}
			for _, own := range state.Granted {
				has[own.Attempt] = driver.Held{Name: state.Name, Session: s.ID, Token: own.Grant.Token, Shared: state.Sharing > 0}
			}
		}
	}
	failed = make([]error, len(all))
	var held []driver.Held
	var rest, of []int // indexes in all: of what is left, and of each in held
	for i, u := range all {
		switch h, there := has[u.attempt.id]; {
		case there && h.Token != 0 && !u.attempt.guarded.Load():
			held, of = append(held, h), append(of, i)
		case there:
			rest = append(rest, i)
		}
	}
	for from := 0; from < len(held); from += maxStatement {
		part := held[from:min(from+maxStatement, len(held))]
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

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none, or it waits for the application's transactions that it has guarded.
func (c *Client) undone(ctx context.Context, attempt string) bool {
	c.registry.mu.Lock()
	k := c.registry.attempts[attempt]
	if k == nil || k.state != Undoing || k.guarded.Load() {
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
