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
// Like Unlock, Detach ends the hold here before its statement is sent. If the statement fails, the
// client releases the lock.
func (l *Lock) Detach(ctx context.Context, d time.Duration) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, l.hold)
	defer cancel()
	within, done := l.hold.Within(ctx)
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
	l.outcome = c.detachHold(ctx, l.hold, d)
	l.unlocked = l.hold.Context().Err() != nil
	return l.outcome
}

// detachHold detaches a hold while nothing else changes it.
func (c *Client) detachHold(ctx context.Context, h *ledger.Hold, d time.Duration) error {
	if err := h.Ended(); err != nil {
		return err
	}
	within, done := h.Within(ctx)
	defer done()
	if err := h.Entries.Lock(within); err != nil {
		return err
	}
	defer h.Entries.Unlock()
	if err := c.settle(within, h); err != nil {
		return cmp.Or(h.Over(), err)
	}
	if err := c.detachable(h); err != nil {
		return err
	}
	// The bound holds also where the application has locked the whole database.
	ctx, cancel := context.WithTimeout(ctx, contract.CleanupTimeout)
	defer cancel()
	to := protocol.Request{Host: h.Owner.Host, Thread: h.Owner.Thread, Attempt: rand.Text()}
	err := c.persist(ctx, func() (err error) {
		to.Session, err = c.openDetached(ctx, d)
		return err
	})
	if err != nil {
		return err
	}
	if err = c.transfer(ctx, h, to, d); err != nil {
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

// transfer ends a hold here, and transfers the lock to another session, which lasts for d from then
// on. MUST be called with the hold's Entries locked.
func (c *Client) transfer(ctx context.Context, h *ledger.Hold, to protocol.Request, d time.Duration) error {
	c.ledger.Leave(h)
	if !c.ledger.Drop(h, errDetached) { // ended by the goroutine that took it out of the ledger
		<-h.Context().Done()
		return h.Ended()
	}
	h.Member.Leave(true)
	held, waited := h.Held(), false
	err := c.persist(ctx, func() error {
		if waited { // a guarded transaction was in the way: d begins anew
			if err := c.lengthen(ctx, to.Session, d); err != nil {
				return err
			}
		}
		waited = true
		_, err := h.In.Do(ctx, protocol.Move{Held: held, Attempt: h.ID, To: to, Self: h.In.ID})
		return err
	})
	c.tellEnded(h, err)
	switch {
	case err == nil:
		c.ledger.Move(h.Attempt, ledger.Finish)
	case errors.Is(err, driver.ErrNotHeld):
		c.ledger.Move(h.Attempt, ledger.Finish)
		err = lost(err)
	default:
		c.abandon(h.In, h.Attempt, store.Unsure)
	}
	return err
}

// detachable returns the reason why a hold cannot be detached, or nil. MUST be called with the
// hold's Entries locked.
func (c *Client) detachable(h *ledger.Hold) error {
	if !c.ledger.Relies(h) {
		return c.ledger.Unusable(h)
	}
	m := h.Mode.Load()
	switch {
	case m.Shared():
		return fmt.Errorf("%w: it is shared", driver.ErrUnsupported)
	case h.Fixed():
		return fmt.Errorf("%w: it has a Lease, and ends with that", driver.ErrUnsupported)
	case c.ledger.Together(h):
		return fmt.Errorf("%w: it was locked together with others", driver.ErrUnsupported)
	}
	return c.ledger.Once(h)
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
	ctx, obs := c.tellStart(ctx, attemptAt(&r, true))
	h, err := c.resumeDetached(ctx, &r, token)
	if err != nil {
		obs.end(0, err)
		return nil, err
	}
	return c.handle(h, obs, false), nil
}

func (c *Client) resumeDetached(ctx context.Context, r *protocol.Request, token int64) (*ledger.Hold, error) {
	s, err := c.sessions.Open(ctx, true)
	if err != nil {
		return nil, err
	}
	state, err := c.store.Look(ctx, "", r.Name)
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
	k := c.ledger.Request(r.Name, r.Attempt)
	got := &receipt{Answer: store.Answer{
		Grant: protocol.Grant{First: token, Token: token, Contended: true}, Asked: c.config.Clock.Now(),
	}}
	from := protocol.Held{Name: r.Name, Session: holder.Session, Token: token}
	err = c.persist(ctx, func() error {
		_, err := s.Do(ctx, protocol.Move{Held: from, Attempt: holder.Attempt, To: *r, Self: s.ID})
		return err
	})
	if err == nil {
		if h, ok := c.rely(ctx, s, k, r, o, got); ok {
			c.endSession(holder.Session)
			return h, nil
		}
		err = store.ErrSessionOver
	}
	if errors.Is(err, driver.ErrNotHeld) {
		c.ledger.Move(k, ledger.Finish)
		return nil, fmt.Errorf("%w: it is not detached any more, or has expired", err)
	}
	c.moveBack(s, k, token, holder)
	return nil, err
}

// moveBack transfers a lock that no caller relies on back to its detached session: a statement that
// was cut off may have taken the lock up.
func (c *Client) moveBack(s *store.Session, k *ledger.Attempt, token int64, to protocol.Holder) {
	held := protocol.Held{Name: k.Name, Session: s.ID, Token: token}
	back := protocol.Request{Session: to.Session, Host: to.Host, Thread: to.Thread, Attempt: to.Attempt}
	c.undo(k, func() {
		within, cancel := contract.UntilClosed(c.store.Tidying, s.Context())
		defer cancel()
		_ = c.store.Retry(within, store.Undoing, func() error {
			_, err := s.Do(c.store.Tidying, protocol.Move{Held: held, Attempt: k.ID, To: back, Self: s.ID})
			if errors.Is(err, driver.ErrNotHeld) {
				return nil
			}
			return err
		})
		s.Doubt() // a statement that runs later may take the lock: then it is released
	})
}
