package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// detached begins the id of a session without heartbeats. Such a session has one lock, and lasts
// for the time for which the lock was detached. Other ids have no small letters.
const detached = "detached"

var errDetached = fmt.Errorf("%w: it was detached", driver.ErrNotHeld)

// Detach transfers the lock to a session of its own, which outlives the client and ends after d.
// Like Unlock, Detach ends the lock here before its statement is sent. If the statement fails, the
// client releases the lock.
func (l *Lock) Detach(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, l.claim)
	defer cancel()
	within, done := l.claim.Within(ctx)
	defer done()
	if err := store.LockWithin(within, l.mu.TryLock); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if l.unlocked {
		return fmt.Errorf("%w: it was unlocked", driver.ErrNotHeld)
	}
	c := l.client
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	l.outcome = l.detach(ctx, d)
	l.unlocked = l.claim.Context().Err() != nil
	return l.outcome
}

// detach is Detach while no Unlock runs.
func (l *Lock) detach(ctx context.Context, d time.Duration) error {
	c, claim := l.client, l.claim
	if err := claim.Revoked(); err != nil {
		return err
	}
	// The bound holds also where the application has locked the whole database.
	ctx, cancel := context.WithTimeout(ctx, contract.CleanupTimeout)
	defer cancel()
	within, done := claim.Within(ctx)
	defer done()
	if err := claim.Grant.Order.Lock(within); err != nil {
		return err
	}
	defer claim.Grant.Order.Unlock()
	if err := c.ledger.Ascertain(within, claim); err != nil {
		return cmp.Or(claim.Over(), err)
	}
	if err := l.detachable(); err != nil {
		return err
	}
	to := protocol.Request{Host: claim.Owner.Host, Thread: claim.Owner.Thread, Attempt: rand.Text()}
	err := c.persist(ctx, func() (err error) {
		to.Session, err = c.openDetached(ctx, d)
		return err
	})
	if err != nil {
		return err
	}
	if err = l.transfer(ctx, to, d); err != nil {
		c.endSession(to.Session)
	}
	return err
}

// openDetached opens a session without heartbeats, which lasts for d. Each call uses another id: if
// an answer was lost, the session may exist. That one is ended.
func (c *Client) openDetached(ctx context.Context, d time.Duration) (id string, err error) {
	id = detached + rand.Text()[:24]
	err = c.store.Call(ctx, func(ctx context.Context) error {
		return c.store.Engine.OpenSession(ctx, driver.Session{
			ID: id, Host: c.config.Host, App: c.config.App, PID: os.Getpid(), TTL: d, Detached: true,
		})
	})
	if driver.InDoubt(err) {
		c.endSession(id)
	}
	return id, err
}

// transfer ends the lock here, and transfers it to another session, which lasts for d from then on.
// MUST be called with Order locked.
func (l *Lock) transfer(ctx context.Context, to protocol.Request, d time.Duration) error {
	c, claim, g := l.client, l.claim, l.claim.Grant
	c.ledger.Leave(claim)
	if err := c.ledger.Quit(claim, errDetached); err != nil {
		return err
	}
	held, waited := claim.Held(), false
	err := c.persist(ctx, func() error {
		if waited { // a guarded transaction was in the way: d begins anew
			if err := c.lengthen(ctx, to.Session, d); err != nil {
				return err
			}
		}
		waited = true
		_, err := g.In.Do(ctx, protocol.Move{Held: held, Attempt: g.ID, To: to, Self: g.In.ID})
		return err
	})
	c.report.ended(claim, err)
	if err == nil {
		c.ledger.Finish(g, true)
		return nil
	}
	c.ledger.Abandon(g, store.Unsure) // a Raise that was not answered may have given it another token meanwhile
	if errors.Is(err, driver.ErrNotHeld) {
		err = c.absent(ctx, claim, lost(err))
	}
	return err
}

// detachable returns the reason why the lock cannot be detached, or nil. MUST be called with Order
// locked.
func (l *Lock) detachable() error {
	book, claim := l.client.ledger, l.claim
	if !book.Relies(claim) {
		return book.Unusable(claim)
	}
	m := claim.Grant.Mode.Load()
	switch {
	case m.Shared():
		return fmt.Errorf("%w: it is shared", driver.ErrUnsupported)
	case claim.Fixed():
		return fmt.Errorf("%w: it has a Lease, and ends with that", driver.ErrUnsupported)
	case book.Together(claim):
		return fmt.Errorf("%w: it was locked together with others", driver.ErrUnsupported)
	}
	return book.Once(claim)
}

// persist retries until ctx ends. If ctx ends, the error also has the failure before that.
func (c *Client) persist(ctx context.Context, try func() error) error {
	var before error
	return c.store.Retry(ctx, store.Patient, func() error {
		err := try()
		if ctx.Err() == nil {
			before = err
			return err
		}
		return driver.Join(err, before)
	})
}

// lengthen lets a session without heartbeats last for d from now.
func (c *Client) lengthen(ctx context.Context, session string, d time.Duration) error {
	return c.store.Call(ctx, func(ctx context.Context) error {
		alive, err := c.store.Engine.Beat(ctx, session, d)
		if err == nil && !alive {
			err = fmt.Errorf("%v had passed before the lock could be detached", d)
		}
		return err
	})
}

// endSession ends a session that shall have no lock, and releases a lock that a late statement has
// given it. It retries until Close. After that the session expires.
func (c *Client) endSession(id string) {
	c.store.Go(func() {
		_ = c.store.Retry(c.store.Background, store.Undoing, func() error { return c.sessions.Remove(id, false) })
	})
}

// Resume takes up the detached lock that has the token.
func (c *Client) Resume(ctx context.Context, name string, token int64) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.store.Begin(); err != nil {
		return nil, err
	}
	defer c.store.Done()
	r := protocol.Request{Name: name, Patient: true}
	ctx, obs := c.report.start(ctx, attemptAt(&r, true))
	claim, err := c.resumeDetached(ctx, &r, token)
	if err != nil && c.store.Closing() {
		err = ErrClosed
	}
	if err != nil {
		obs.end(0, err)
		return nil, err
	}
	return c.handle(claim, obs, false), nil
}

func (c *Client) resumeDetached(ctx context.Context, r *protocol.Request, token int64) (*ledger.Claim, error) {
	var s *store.Session
	var state driver.State
	err := c.persist(ctx, func() (err error) {
		if s, err = c.sessions.Open(ctx, true); err == nil {
			state, err = c.store.Look(ctx, "", r.Name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	holder := state.Holder
	switch {
	case state.Sharing > 0:
		return nil, fmt.Errorf("%w: %d clients share it", driver.ErrNotHeld, state.Sharing)
	case holder.Session == "":
		return nil, fmt.Errorf("%w: no client holds it", driver.ErrNotHeld)
	case holder.Grant.Token != token:
		return nil, fmt.Errorf("%w: held by %s", driver.ErrNotHeld, holder.Named())
	case !strings.HasPrefix(holder.Session, detached):
		return nil, fmt.Errorf("%w: held by %s, which lives and has not detached it", driver.ErrNotHeld,
			holder.Named())
	}
	o := c.owners.Of(ctx, nil)
	r.Session, r.Host, r.Thread, r.Attempt = s.ID, o.Host, o.Thread, c.owners.Attempt(ctx, o)
	claim := c.ledger.Request(s, r, o)
	got := store.Answer{
		Outcome: protocol.Done, Grant: protocol.Grant{First: token, Token: token, Contended: true},
		Asked: c.config.Clock.Now(),
	}
	from := protocol.Held{Name: r.Name, Session: holder.Session, Token: token}
	err = c.persist(ctx, func() error {
		_, err := s.Do(ctx, protocol.Move{Held: from, Attempt: holder.Attempt, To: *r, Self: s.ID})
		return err
	})
	if err == nil {
		if err = c.hold(ctx, claim, &got); err == nil {
			c.endSession(holder.Session)
			return claim, nil
		}
		err = driver.Fail(driver.ErrUnavailable, err)
	}
	if errors.Is(err, driver.ErrNotHeld) {
		c.ledger.Finish(claim.Grant, true)
		return nil, fmt.Errorf("%w: it is not detached any more, or has expired", err)
	}
	c.moveBack(claim.Grant, token, holder)
	return nil, err
}

// moveBack transfers a lock that no caller relies on back to its detached session: a statement that
// was cut off may have taken the lock up.
func (c *Client) moveBack(g *ledger.Grant, token int64, to protocol.Holder) {
	s := g.In
	held := protocol.Held{Name: g.Name, Session: s.ID, Token: token}
	back := protocol.Request{Session: to.Session, Host: to.Host, Thread: to.Thread, Attempt: to.Attempt}
	c.ledger.Undo(g, func() {
		within, cancel := contract.UntilClosed(c.store.Tidying, s.Context())
		defer cancel()
		_ = c.store.Retry(within, store.Undoing, func() error {
			_, err := s.Do(c.store.Tidying, protocol.Move{Held: held, Attempt: g.ID, To: back, Self: s.ID})
			if errors.Is(err, driver.ErrNotHeld) {
				return nil
			}
			return err
		})
		s.NoteUnknown() // a statement that runs later may take the lock: then it is released
	})
}
