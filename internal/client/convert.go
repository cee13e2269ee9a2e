package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Downgrade makes a reader of a writer.
func (l *Lock) Downgrade(ctx context.Context) error {
	c, h, sent := l.client, l.hold, false
	return l.convert(ctx, ledger.Yielding, func(m ledger.Mode) (ledger.Mode, error) {
		switch {
		case m.Shared() && sent: // an earlier try has converted it, and its answer was lost
			return m, nil
		case m.Shared():
			return m, fmt.Errorf("%w: it is shared already", driver.ErrUnsupported)
		}
		if err := c.ledger.Once(h); err != nil {
			return m, err
		}
		sent = true
		_, err := h.In.Do(ctx, protocol.Downgrade{Held: h.Held()})
		if err != nil {
			return m, err
		}
		m.Units, m.Of = 1, protocol.Readers
		return m, nil
	})
}

// TryUpgrade makes a writer of a reader, if no other reader holds the name.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	c, h := l.client, l.hold
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		if !m.Shared() {
			return m, nil
		}
		if err := c.ledger.Once(h); err != nil {
			return m, err
		}
		upgraded, err := h.In.Do(ctx, protocol.Upgrade{Held: h.Held(), Attempt: h.ID})
		switch {
		case err != nil:
			return m, err
		case !upgraded.Done():
			state, _ := c.store.Look(ctx, h.In.ID, h.Name)
			return m, c.notAcquired(state, nil)
		}
		m.Token, m.Last, m.Units, m.Of = upgraded.Grant.Token, upgraded.Grant.Token, 0, 0
		return m, nil
	})
}

// Raise lifts the token to at least the given one, and returns the token after that.
func (l *Lock) Raise(ctx context.Context, token int64) (raised int64, err error) {
	err = l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		if m.Shared() {
			return m, fmt.Errorf("%w: it is shared", driver.ErrUnsupported)
		}
		var err error
		if raised, err = raise(ctx, l.hold, l.hold.Held(), token); err == nil {
			m.Token, m.Last = raised, raised
		}
		return m, err
	})
	return raised, err
}

// Extend moves the end of a fixed lease, and never back. Without an answer the client keeps the
// earlier end, even if the database has a later one.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	c, h := l.client, l.hold
	if !h.Fixed() {
		return fmt.Errorf("%w: the lock has no Lease", ErrInvalidOption)
	}
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		asked := c.config.Clock.Now()
		extended, err := h.In.Do(ctx, protocol.Extend{Held: h.Held(), For: d})
		if err != nil {
			return m, err
		}
		if !c.ledger.Prolong(h, ledger.LeaseEnd(extended.Grant.Lease, asked, c.config.Clock.Now())) {
			c.ledger.Expire(h)
			<-h.Context().Done() // ended by the goroutine that took the hold out of the ledger
		}
		return m, nil
	})
}

// Record writes an event of the application's own, if the lock is held.
func (l *Lock) Record(ctx context.Context, kind, detail string) error {
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		e := l.hold.Event(kind, Clean(detail, MaxReason))
		_, err := l.hold.In.Do(ctx, protocol.Announce{Held: l.hold.Held(), Event: e})
		return m, err
	})
}

// convert changes how a lock is held, while nothing else changes it, and retries a lost race. f
// sends the change, and returns the mode after it. If the answer to f is lost, doubt is in the
// mode: Unknown, or Yielding, which the mode has while f is in flight, too.
func (l *Lock) convert(
	ctx context.Context, doubt ledger.Doubt, f func(m ledger.Mode) (ledger.Mode, error),
) error {
	if ctx == nil {
		return errNilContext
	}
	c, h := l.client, l.hold
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	var final error // an error that is not retried
	err := c.store.Retry(ctx, store.Patient, func() error {
		err := c.tryConvert(ctx, h, doubt, f)
		switch over := h.Over(); { // the lock may have ended while the statement was in flight
		case over != nil:
			final = over
		case err == ledger.ErrReleasedTx, err != nil && !h.In.Alive():
			final = err
		case errors.Is(err, driver.ErrNotHeld):
			c.ledger.Lose(err, h)
			final = lost(err)
		default:
			return err // with nothing locked: the transaction in the way may need the mutexes
		}
		return nil
	})
	return cmp.Or(final, err)
}

// tryConvert converts once.
func (c *Client) tryConvert(
	ctx context.Context, h *ledger.Hold, doubt ledger.Doubt, f func(m ledger.Mode) (ledger.Mode, error),
) error {
	within, done := h.Within(ctx)
	defer done()
	if err := h.Entries.Lock(within); err != nil {
		return err
	}
	defer h.Entries.Unlock()
	if !c.ledger.Relies(h) { // before the wait for the mode, on which a statement of UnlockTx may rely
		return c.ledger.Unusable(h)
	}
	if err := store.LockWithin(within, h.Mode.TryLock); err != nil {
		return err
	}
	defer h.Mode.Unlock()
	if err := c.single(within, h); err != nil {
		return err
	}
	if err := c.readMode(within, h); err != nil {
		return err
	}
	was := *h.Mode.Load()
	if doubt == ledger.Yielding {
		during := was
		during.Doubt = ledger.Yielding
		h.Mode.Store(&during)
	}
	now, err := f(was)
	if err != nil && store.ResidueOf(err) == store.Unsure {
		now.Doubt = doubt
	}
	h.Mode.Store(&now)
	return err
}
