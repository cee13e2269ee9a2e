package dblock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Downgrade makes a reader of a writer, without a moment in between in which another writer could
// come in. The readers that stand first in the queue enter with the same commit. The lock keeps
// its token, its context and its fixed lease.
//
// (While the name rests, see MinHold, they wait until that is over.) Readers come in beside a
// transaction that the lock guards.
//
// ErrLost as Unlock. ErrUnsupported on a lock without tables, on a share, and where the lock was
// entered several times. ErrCapacity where somebody waits for permits of the name. After any other
// error the lock is one of the two; whatever is called next finds out which, and a lock that turns
// out to be a writer still has a new token.
func (l *Lock[TX]) Downgrade(ctx context.Context) error {
	sent := false
	return l.regrade(ctx, "downgrade", func(s *standing) error {
		if s.shared() && sent { // whose answer was lost
			return nil
		}
		if s.shared() {
			return fmt.Errorf("%w: it is shared already", ErrUnsupported)
		}
		if err := l.hold.once(); err != nil {
			return err
		}
		sent = true
		l.client.yield(l.hold, true) // first: a reader may hear of its grant before the answer is here
		asked := l.client.config.clock()
		var next []driver.Handoff
		err := l.client.statement(ctx, func(ctx context.Context) (err error) {
			next, err = l.client.engine.Downgrade(ctx, l.hold.held())
			return err
		})
		if err == nil {
			l.client.stand(l.hold, standing{s.token, 1, driver.Readers})
		}
		if err == nil || residueOf(err) != unsure { // else readers may still come in
			l.client.yield(l.hold, false)
		}
		l.hold.life.hub.Hand(next, asked)
		if err != nil {
			l.hold.life.hub.Doubt(l.hold.name)
		}
		return err
	})
}

// TryUpgrade makes a writer of a reader, at once and before all waiters, if nobody else has a
// share of the name. If somebody has, it returns ErrNotAcquired at once, and the lock is what it
// was: so that of two readers that both want to write neither waits for the other. To wait, unlock,
// and Lock: then others may write in between, and what was read has to be read again. A writer has
// a new token, higher than those of all readers before it; Token returns it.
//
// ErrLost as Unlock. ErrUnsupported on a lock without tables, and where the lock was entered
// several times. After any other error the lock is one of the two; whatever is called next finds
// out which.
func (l *Lock[TX]) TryUpgrade(ctx context.Context) error {
	return l.regrade(ctx, "tryupgrade", func(s *standing) error {
		if !s.shared() {
			return nil
		}
		if err := l.hold.once(); err != nil {
			return err
		}
		var g driver.Grant
		var got bool
		err := l.client.statement(ctx, func(ctx context.Context) (err error) {
			g, got, err = l.client.engine.Upgrade(ctx, l.hold.held(), l.hold.attempt)
			return err
		})
		switch {
		case err != nil:
			return err
		case !got:
			state, _ := l.client.look(ctx, l.hold.life, l.hold.name)
			return notAcquired(state, nil)
		}
		l.client.stand(l.hold, standing{token: g.Token})
		return nil
	})
}

// Raise lifts the fencing token to at least the given value and returns what it is then: for who
// keeps one lock in several databases, and must have one order of tokens over all of them (package
// quorum). ErrLost as Unlock. ErrUnsupported on a share and on a lock without tables.
func (l *Lock[TX]) Raise(ctx context.Context, token int64) (raised int64, err error) {
	err = l.regrade(ctx, "raise", func(s *standing) error {
		if s.shared() {
			return fmt.Errorf("%w: it is shared", ErrUnsupported)
		}
		err := l.client.statement(ctx, func(ctx context.Context) (err error) {
			raised, err = l.client.engine.Raise(ctx, l.hold.held(), token)
			return err
		})
		if err == nil {
			l.client.stand(l.hold, standing{token: raised})
		}
		return err
	})
	return raised, err
}

// once refuses to change what code relies on that entered the lock again. MUST be called with mu
// locked.
func (h *hold) once() error {
	if h.count > 1 {
		return fmt.Errorf("%w: the lock was entered %d times", ErrUnsupported, h.count)
	}
	return nil
}

// regrade changes what a lock is in the database, alone, and again where a race was lost.
func (l *Lock[TX]) regrade(ctx context.Context, op string, change func(s *standing) error) error {
	h := l.hold
	fail := func(err error) error { return &LockError{op, h.name, err} }
	switch {
	case ctx == nil:
		return fail(fmt.Errorf("%w: the context is nil", ErrInvalidOption))
	case h.native != nil:
		return fail(fmt.Errorf("%w: the lock is not in a table", ErrUnsupported))
	}
	if err := l.client.begin(); err != nil {
		return fail(err)
	}
	defer l.client.calls.Done()
	for {
		err := l.change(ctx, change)
		switch cause := context.Cause(h.ctx); { // it may have ended while the statement was at work
		case errors.Is(cause, ErrLost):
			return fail(errors.Unwrap(cause))
		case cause != nil:
			return fail(cause)
		case err == nil:
			return nil
		case errors.Is(err, driver.ErrNotHeld):
			l.client.lose(h, err)
			return fail(lost(err))
		case !transient(err) || ctx.Err() != nil || !h.life.Alive():
			return fail(err)
		}
		pause(ctx, 10*time.Millisecond) // with nothing locked: what is in the way may need it
	}
}

// change does so once.
func (l *Lock[TX]) change(ctx context.Context, change func(s *standing) error) error {
	h := l.hold
	if err := acquire(ctx, h.mu.TryLock); err != nil { // somebody relies on what it is, in a transaction that waits perhaps
		return err
	}
	defer h.mu.Unlock()
	if err := acquire(ctx, h.grade.TryLock); err != nil {
		return err
	}
	defer h.grade.Unlock()
	if err := l.client.ascertain(ctx, h); err != nil {
		return err
	}
	err := change(h.standing.Load())
	if err != nil && residueOf(err) == unsure && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrNotAcquired) {
		h.vague.Store(true)
		h.wavering.Store(true)
	}
	return err
}

// acquire waits for a mutex until ctx ends.
func acquire(ctx context.Context, try func() bool) error {
	for !try() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause(ctx, time.Millisecond)
	}
	return nil
}

// sure finds out what a hold is, where that is not known.
func (c *Client[TX]) sure(ctx context.Context, h *hold) error {
	if !h.vague.Load() {
		return nil
	}
	if err := acquire(ctx, h.grade.TryLock); err != nil {
		return err
	}
	defer h.grade.Unlock()
	err := c.ascertain(ctx, h)
	if errors.Is(err, driver.ErrNotHeld) {
		c.lose(h, err)
		err = lost(err)
	}
	return err
}

// ascertain finds out what a lock is after a change whose outcome is not known. MUST be called with
// grade locked.
func (c *Client[TX]) ascertain(ctx context.Context, h *hold) error {
	if h.ctx.Err() != nil || !h.vague.Load() {
		return nil
	}
	state, err := c.look(ctx, h.life, h.name)
	if err != nil {
		return err
	}
	for _, own := range state.Granted {
		if own.Attempt != h.attempt {
			continue
		}
		now := *h.standing.Load()
		now.token = own.Grant.Token
		switch {
		case state.Sharing == 0:
			now.units, now.of = 0, 0
			if c.yields(h) { // its Downgrade may still run: not with another token
				now.token, err = c.engine.Raise(ctx, driver.Held{Name: h.name, Session: h.life.ID, Token: now.token}, now.token+1)
				if err != nil {
					return err
				}
			}
		case now.units == 0:
			now.units, now.of = 1, driver.Readers
		}
		c.stand(h, now)
		h.vague.Store(false)
		c.yield(h, false)
		return nil
	}
	return driver.ErrNotHeld
}

// yield says whether readers that enter are no reason to believe that the lock was lost.
func (c *Client[TX]) yield(h *hold, yielding bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.yielding = yielding
}

func (c *Client[TX]) yields(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.yielding
}

// stand notes what the hold is now.
func (c *Client[TX]) stand(h *hold, s standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.standing.Store(&s)
	if c.books.holds[h.attempt] == h {
		c.books.sort(h)
	}
}

// Until is when the lock ends if its client does not reach the database any more from now on, by
// this machine's clock: every heartbeat moves it, except where a fixed lease ends before. The zero
// time for a lock without tables, and for one that is not held any more.
func (l *Lock[TX]) Until() time.Time {
	h := l.hold
	if h.native != nil || h.ctx.Err() != nil {
		return time.Time{}
	}
	end := h.life.Deadline()
	if h.fixed {
		end = min(end, h.end)
	}
	return time.Now().Add(end - l.client.config.clock())
}

// Shared reports whether others may have the name as well: the lock is a reader's, or permits, or
// after an error nobody knows.
func (l *Lock[TX]) Shared() bool { return l.hold.vague.Load() || l.hold.standing.Load().shared() }
