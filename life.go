package dblock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/wait"
	"github.com/dblock-go/dblock/reaper"
)

// life is one session of a client, and the waiting room that belongs to it.
type life struct {
	*session.Session
	hub      *wait.Hub
	deadlock *deadlock.Detector
}

// hand tells the waiters of this client what a statement has given them. Where its answer was lost
// they look for themselves.
func (l *life) hand(name string, next []driver.Handoff, asked time.Duration, err error) {
	l.hub.Hand(next, asked)
	if err != nil && !errors.Is(err, driver.ErrNotHeld) && residueOf(err) == unsure {
		l.hub.Doubt(name)
	}
}

// begin counts a call in, so that Close waits for it; it MUST be followed by calls.Done.
func (c *Client[TX]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// living returns the session that is alive now, and opens one where none is.
func (c *Client[TX]) living(ctx context.Context) (*life, error) {
	for {
		l, err := c.tryLiving(ctx)
		if !errors.Is(err, driver.ErrBusy) {
			return l, err
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return nil, driver.Fail(ctx.Err(), err)
		}
	}
}

// tryLiving is living that does not wait for a transaction of the application's which has locked
// the database: ErrBusy.
func (c *Client[TX]) tryLiving(ctx context.Context) (*life, error) {
	if l := c.present(); l != nil {
		return l, nil
	}
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := c.present(); l != nil {
		return l, nil
	}
	if err := c.checkSchema(ctx); err != nil {
		return nil, err
	}
	c.attend()
	s, err := session.Open(ctx, c.engine, session.Config{
		Host: c.config.host, App: c.config.app, PID: os.Getpid(), TTL: c.config.ttl, Clock: c.config.clock, Log: c.config.log,
		Reconcile: c.reconcile, Holding: c.holding,
	})
	if err != nil {
		return nil, err
	}
	l := &life{Session: s, hub: wait.New(s.Context(), c.engine, s.ID, wait.Config{
		Clock: c.config.clock, Log: c.config.log, Safety: c.config.ttl / 3, Limit: c.config.ttl,
		Stray:     func(attempt string) { c.verify(attempt) },
		Reclaimed: c.recordExpired,
	})}
	l.deadlock = deadlock.New(s.Context(), c.engine, deadlock.Config{After: c.config.deadlock, Limit: c.config.ttl, Log: c.config.log})
	c.mu.Lock()
	first := c.life == nil
	c.life = l
	c.mu.Unlock()
	c.lives.Go(func() {
		<-s.Context().Done()
		s.Stop(nil)
		l.hub.Wait()
		l.deadlock.Wait()
	})
	if first && c.config.events {
		c.lives.Go(c.keepHistory)
	}
	if first && c.config.reap {
		c.lives.Go(func() {
			options := []reaper.Option{reaper.Logger(c.config.log)}
			if c.config.events {
				options = append(options, reaper.Events())
			}
			_ = reaper.Run(c.background, c.engine, append(options, c.config.reaper...)...)
		})
	}
	return l, nil
}

// attend tells the engine once that this client works through it.
func (c *Client[TX]) attend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dismiss == nil {
		c.dismiss = c.engine.Attend(c.config.ttl)
	}
}

// present is the latest session if it is alive.
func (c *Client[TX]) present() *life {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil || !c.life.Alive() {
		return nil
	}
	return c.life
}

// known reports whether the client ever had a session: whether it was set up right.
func (c *Client[TX]) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life != nil
}

// endLife ends a session in good order.
func (c *Client[TX]) endLife(l *life) error {
	l.Stop(ErrClosed)
	began := c.config.clock()
	for {
		err := c.bury(l)
		busy := errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry) // another is ending it, or a race was lost
		switch {
		case err == nil:
			return nil
		case !busy && !errors.Is(err, errMore) || c.config.clock()-began >= cleanupTimeout || c.tidying.Err() != nil:
			return fmt.Errorf("ending session %s, which now expires by itself: %w", l.ID, err)
		case busy:
			pause(c.tidying, 20*time.Millisecond)
		}
	}
}

var errMore = errors.New("statements that were cut off go on taking locks for it")

// bury ends a session in the database, and gives back what a statement that was cut off has taken
// for it all the same, after the client had looked for that: errMore, until there is nothing. What
// is behind a transaction of the application's goes with the dead.
func (c *Client[TX]) bury(l *life) error {
	var left []driver.Claim
	err := c.statement(c.tidying, func(ctx context.Context) (err error) {
		if err = c.engine.EndSession(ctx, l.ID); err == nil {
			left, err = c.engine.Orphans(ctx, l.ID, 64)
		}
		return err
	})
	for _, claim := range left {
		left := c.statement(c.tidying, func(ctx context.Context) (err error) { // the engine tells the next holder
			if claim.Token == 0 {
				_, err = c.engine.Leave(ctx, l.ID, claim.Name, claim.Attempt)
			} else { // a transaction that it guards may still be open
				_, _, err = c.engine.Reclaim(ctx, "", claim.Name, driver.Holder{Session: l.ID, Attempt: claim.Attempt, Grant: driver.Grant{Token: claim.Token}})
			}
			return err
		})
		if left == nil {
			err = errMore
		}
	}
	return err
}

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation.
func (c *Client[TX]) abandon(l *life, name, attempt string, unsure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undo(l, name, attempt, unsure)
}

// undo is abandon for a caller that has mu locked, as it MUST be.
func (c *Client[TX]) undo(l *life, name, attempt string, unsure bool) {
	done := make(chan struct{})
	c.undoing[attempt] = done
	c.calls.Go(func() {
		defer close(done)
		defer c.unclaim(attempt)
		for tries := 1; l.Context().Err() == nil && c.tidying.Err() == nil; tries++ {
			asked := c.config.clock()
			var next []driver.Handoff
			err := c.statement(c.tidying, func(ctx context.Context) (err error) {
				next, err = c.engine.Leave(ctx, l.ID, name, attempt)
				return err
			})
			l.hand(name, next, asked, err)
			if err == nil {
				break
			}
			if !transient(err) {
				c.config.log.Warn("dblock: giving back failed", "name", name, "error", err)
				break
			}
			if errors.Is(err, driver.ErrBusy) && c.background.Err() != nil && tries > 20 {
				break // a transaction of the application's is in the way of Close: it ends with the session
			}
			pause(c.tidying, min(time.Duration(tries)*20*time.Millisecond, 500*time.Millisecond))
		}
		if unsure {
			l.Check()
		}
	})
}

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none.
func (c *Client[TX]) undone(ctx context.Context, attempt string) bool {
	c.mu.Lock()
	done := c.undoing[attempt]
	c.mu.Unlock()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client[TX]) claim(attempt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[attempt] = true
}

// claimed reports whether this client may have, or get, what an attempt was for.
func (c *Client[TX]) claimed(attempt string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts[attempt]
}

func (c *Client[TX]) unclaim(attempt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attempts, attempt)
	delete(c.lent, attempt)
	delete(c.overdue, attempt)
	delete(c.undoing, attempt)
}

// reconcile compares what the session has in the database with what the client believes that it
// has. What no handle claims is given back: a statement that ran after its caller had given up.
// What a handle claims and the database does not have is lost: taken by the same owner elsewhere,
// by an operator, or by a failover to a server that never heard of it.
func (c *Client[TX]) reconcile(ctx context.Context, s *session.Session, list func(context.Context) ([]driver.Claim, error)) error {
	believed := c.holdsOf(s) // before the question: what is granted after it is not in the answer
	claims, err := list(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	life, closed := c.life, c.closed
	var unclaimed []driver.Claim
	over := maps.Clone(c.overdue)
	for _, claim := range claims {
		delete(believed, claim.Attempt)
		delete(over, claim.Attempt)
		if !c.attempts[claim.Attempt] {
			unclaimed = append(unclaimed, claim)
		}
		if h := c.books.holds[claim.Attempt]; h != nil {
			h.ask(claim.Asked)
		}
	}
	if closed || life == nil || life.Session != s {
		c.mu.Unlock()
		return nil
	}
	for attempt := range over { // somebody has taken it
		delete(c.overdue, attempt)
		delete(c.attempts, attempt)
	}
	for _, claim := range unclaimed {
		c.attempts[claim.Attempt] = true
		c.undo(life, claim.Name, claim.Attempt, false)
	}
	c.mu.Unlock()
	for _, h := range believed {
		c.lose(h, errors.New("the database says that another has it, or nobody"))
	}
	return nil
}

// holding reports whether there is anything that others could want or take.
func (c *Client[TX]) holding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.books.holds)+len(c.overdue) > 0
}

// holdsOf returns what the client believes to hold in a session, by attempt.
func (c *Client[TX]) holdsOf(s *session.Session) map[string]*hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds := make(map[string]*hold, len(c.books.holds))
	for attempt, h := range c.books.holds {
		if h.life != nil && h.life.Session == s {
			holds[attempt] = h
		}
	}
	return holds
}

// verify follows a hint about an attempt that nobody waits with, or about none in particular (""):
// if it holds a lock, that may be lost, or somebody asks for it.
func (c *Client[TX]) verify(attempt string) {
	c.mu.Lock()
	life := c.life
	ours := c.attempts[attempt] || attempt == "" && len(c.books.holds) > 0 // held, or about to be
	c.mu.Unlock()
	if ours {
		life.Check()
	}
}

// transient reports whether to run a statement of our own again may help.
func transient(err error) bool {
	return errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrBusy) || errors.Is(err, ErrUnavailable)
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}
