package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Downgrade makes a reader of a writer.
func (l *Lock) Downgrade(ctx context.Context) error {
	h, sent := l.hold, false
	return l.convert(ctx, true, func(m mode) (mode, error) {
		switch {
		case m.shared() && sent: // an earlier try did it, and its answer was lost
			return m, nil
		case m.shared():
			return m, fmt.Errorf("%w: it is shared already", driver.ErrUnsupported)
		}
		if err := h.once(); err != nil {
			return m, err
		}
		sent = true
		_, err := h.in.Do(ctx, protocol.Downgrade{Held: h.held()})
		if err != nil {
			return m, err
		}
		m.units, m.of = 1, driver.Readers
		return m, nil
	})
}

// TryUpgrade makes a writer of a reader, if no other reader holds the name.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	c, h := l.client, l.hold
	return l.convert(ctx, false, func(m mode) (mode, error) {
		if !m.shared() {
			return m, nil
		}
		if err := h.once(); err != nil {
			return m, err
		}
		upgraded, err := h.in.Do(ctx, protocol.Upgrade{Held: h.held(), Attempt: h.id})
		switch {
		case err != nil:
			return m, err
		case !upgraded.Done():
			state, _ := c.store.Look(ctx, h.in.ID, h.name)
			return m, c.notAcquired(state, nil)
		}
		m.token, m.last, m.units, m.of = upgraded.Grant.Token, upgraded.Grant.Token, 0, 0
		return m, nil
	})
}

// Raise lifts the token to at least the given one, and returns the token after that.
func (l *Lock) Raise(ctx context.Context, token int64) (raised int64, err error) {
	err = l.convert(ctx, false, func(m mode) (mode, error) {
		if m.shared() {
			return m, fmt.Errorf("%w: it is shared", driver.ErrUnsupported)
		}
		var err error
		if raised, err = raise(ctx, l.hold.in, l.hold.held(), token); err == nil {
			m.token, m.last = raised, raised
		}
		return m, err
	})
	return raised, err
}

// Extend moves the end of a fixed lease, and never back. Without an answer the earlier end stands
// here, whatever the database has.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	c, h := l.client, l.hold
	if !h.fixed {
		return fmt.Errorf("%w: the lock has no Lease", ErrInvalidOption)
	}
	return l.convert(ctx, false, func(m mode) (mode, error) {
		asked := c.config.Clock.Now()
		extended, err := h.in.Do(ctx, protocol.Extend{Held: h.held(), For: d})
		if err != nil {
			return m, err
		}
		if !c.prolong(h, leaseEnd(extended.Grant.Lease, asked, c.config.Clock.Now())) {
			c.expire(h)
			<-h.ctx.Done() // ended by the goroutine that took the hold out of the registry
		}
		return m, nil
	})
}

// Record writes an event of the application's own, if the lock is held.
func (l *Lock) Record(ctx context.Context, kind, detail string) error {
	return l.convert(ctx, false, func(m mode) (mode, error) {
		_, err := l.hold.in.Do(ctx, protocol.Announce{Held: l.hold.held(), Event: eventOf(l.hold, kind, detail)})
		return m, err
	})
}

// once refuses to change a lock that was entered again: other code relies on the lock as it is.
// MUST be called with mu locked.
func (h *hold) once() error {
	if h.entries > 1 {
		return fmt.Errorf("%w: the lock was entered %d times", driver.ErrUnsupported, h.entries)
	}
	return nil
}

// convert changes how a lock is held, with nothing else at work on it, and tries again where a race
// was lost. f sends the change, and returns the mode after it. downgrade: readers may come in
// beside the lock while f is in flight.
func (l *Lock) convert(ctx context.Context, downgrade bool, f func(m mode) (mode, error)) error {
	if ctx == nil {
		return errNilContext
	}
	c, h := l.client, l.hold
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	var final error // is not tried again
	err := c.store.Retry(ctx, store.Patient, func() error {
		err := c.tryConvert(ctx, h, downgrade, f)
		switch over := h.over(); { // the lock may have ended while the statement was in flight
		case over != nil:
			final = over
		case err == errReleasedTx, err != nil && !h.in.Alive():
			final = err
		case errors.Is(err, driver.ErrNotHeld):
			c.lose(h, err)
			final = lost(err)
		default:
			return err // with nothing locked: what is in the way may need it
		}
		return nil
	})
	return cmp.Or(final, err)
}

// tryConvert converts once.
func (c *Client) tryConvert(ctx context.Context, h *hold, downgrade bool, f func(m mode) (mode, error)) error {
	if err := lockWithin(ctx, h.mu.TryLock); err != nil { // a transaction may rely on the mode, and wait
		return err
	}
	defer h.mu.Unlock()
	if err := lockWithin(ctx, h.conversion.TryLock); err != nil {
		return err
	}
	defer h.conversion.Unlock()
	if !c.registry.relies(h) {
		return c.unusable(h)
	}
	if err := c.ascertain(ctx, h); err != nil {
		return err
	}
	was, lost := *h.mode.Load(), unknown
	if downgrade {
		lost = yielding
		during := was
		during.doubt = yielding
		h.mode.Store(&during)
	}
	now, err := f(was)
	if err != nil && store.ResidueOf(err) == store.Unsure {
		now.doubt = lost
	}
	h.mode.Store(&now)
	return err
}
