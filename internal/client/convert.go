package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Downgrade makes a reader of a writer.
func (l *Lock) Downgrade(ctx context.Context) error {
	c, claim, sent := l.client, l.claim, false
	return l.convert(ctx, ledger.Yielding, func(m ledger.Mode) (ledger.Mode, error) {
		switch {
		case m.Shared() && sent: // an earlier try has converted it, and its answer was lost
			return m, nil
		case m.Shared():
			return m, fmt.Errorf("%w: it is shared already", driver.ErrUnsupported)
		}
		if err := c.ledger.Once(claim); err != nil {
			return m, err
		}
		sent = true
		_, err := claim.Grant.In.Do(ctx, protocol.Downgrade{Held: claim.Held()})
		if err != nil {
			return m, err
		}
		m.Units, m.Of = 1, protocol.Readers
		return m, nil
	})
}

// TryUpgrade makes a writer of a reader, if no other reader holds the name.
func (l *Lock) TryUpgrade(ctx context.Context) error {
	c, claim := l.client, l.claim
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		if !m.Shared() {
			return m, nil
		}
		if err := c.ledger.Once(claim); err != nil {
			return m, err
		}
		g := claim.Grant
		upgrade := protocol.Upgrade{Held: claim.Held(), Attempt: g.ID}
		upgraded, err := g.In.Do(ctx, upgrade)
		if err == nil && !upgraded.Done() && c.sessions.Sweep(ctx) {
			upgraded, err = g.In.Do(ctx, upgrade)
		}
		switch {
		case err != nil:
			return m, err
		case !upgraded.Done():
			state, _ := c.store.Look(ctx, g.In.ID, g.Name)
			return m, c.notAcquired(state, nil)
		}
		m.Last, m.Units, m.Of = upgraded.Grant.Token, 0, 0
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
		if raised, err = l.claim.Grant.Raise(ctx, l.claim.Held(), token); err == nil {
			m.Last = raised
		}
		return m, err
	})
	return raised, err
}

// Extend moves the end of a fixed lease, and never back. Without an answer the client keeps the
// earlier end, even if the database has a later one.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	c, claim := l.client, l.claim
	if !claim.Fixed() {
		return fmt.Errorf("%w: the lock has no Lease", ErrInvalidOption)
	}
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		asked := c.config.Clock.Now()
		extended, err := claim.Grant.In.Do(ctx, protocol.Extend{Held: claim.Held(), For: d})
		if err != nil {
			return m, err
		}
		if !c.ledger.Prolong(claim, ledger.LeaseEnd(extended.Grant.Lease, asked, c.config.Clock.Now())) {
			c.ledger.Expire(claim)
			<-claim.Context().Done() // ended by the goroutine that ended the claim
		}
		return m, nil
	})
}

// Record writes an event of the application's own, if the lock is held.
func (l *Lock) Record(ctx context.Context, kind, detail string) error {
	return l.convert(ctx, ledger.Unknown, func(m ledger.Mode) (ledger.Mode, error) {
		e := l.claim.Event(kind, Clean(detail, MaxReason))
		_, err := l.claim.Grant.In.Do(ctx, protocol.Announce{Held: l.claim.Held(), Event: e})
		return m, err
	})
}

// convert changes how a lock is held, while nothing else changes it, and retries a lost race. f
// sends the change, and returns the mode after it. If the answer to f is lost, unsure is in the
// mode: Unknown, or Yielding, which the mode has while f is in flight, too.
func (l *Lock) convert(
	ctx context.Context, unsure ledger.Knowledge, f func(m ledger.Mode) (ledger.Mode, error),
) error {
	if ctx == nil {
		return errNilContext
	}
	c, claim := l.client, l.claim
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	var final error // an error that is not retried
	err := c.store.Retry(ctx, store.Patient, func() error {
		err := l.tryConvert(ctx, unsure, f)
		switch over := claim.Over(); { // the lock may have ended while the statement was in flight
		case over != nil:
			final = over
		case err == ledger.ErrReleasedTx, err != nil && !claim.Grant.In.Alive():
			final = err
		case errors.Is(err, driver.ErrNotHeld):
			c.ledger.Lose(ctx, err, claim)
			final = claim.LostFor(err)
		default:
			return err // with nothing locked: the transaction in the way may need the mutexes
		}
		return nil
	})
	return cmp.Or(final, err)
}

// tryConvert converts once.
func (l *Lock) tryConvert(
	ctx context.Context, unsure ledger.Knowledge, f func(m ledger.Mode) (ledger.Mode, error),
) error {
	book, claim := l.client.ledger, l.claim
	mode := &claim.Grant.Mode
	within, done := claim.Within(ctx)
	defer done()
	if err := claim.Grant.Order.Lock(within); err != nil {
		return err
	}
	defer claim.Grant.Order.Unlock()
	if !book.Relies(claim) { // before the wait for the mode, on which a statement of UnlockTx may rely
		return book.Unusable(claim)
	}
	if err := store.LockWithin(within, mode.TryLock); err != nil {
		return err
	}
	defer mode.Unlock()
	if err := book.Single(within, claim); err != nil {
		return err
	}
	if err := claim.Over(); err != nil { // Unlock has the mode from here on
		return err
	}
	if err := book.ReadMode(within, claim); err != nil {
		return err
	}
	was := *mode.Load()
	if unsure == ledger.Yielding {
		during := was
		during.Knowledge = ledger.Yielding
		claim.Become(during)
	}
	now, err := f(was)
	if err != nil && store.ResidueOf(err) == store.Unsure {
		now.Knowledge = unsure
	}
	claim.Become(now)
	return err
}

// Confirm asks the database whether the lock is held.
func (l *Lock) Confirm(ctx context.Context) error {
	c, claim := l.client, l.claim
	within, done := claim.Within(ctx)
	defer done()
	if err := claim.Grant.Order.Lock(within); err != nil {
		return err
	}
	defer claim.Grant.Order.Unlock()
	if err := context.Cause(claim.Context()); err != nil {
		return err
	}
	return c.store.Insist(ctx, func(ctx context.Context) error {
		g := claim.Grant
		state, err := c.store.Look(ctx, g.In.ID, g.Name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(state.Granted, func(own driver.OwnGrant) bool { return own.Attempt == g.ID }) {
			return nil
		}
		c.ledger.Lose(ctx, driver.ErrNotHeld, claim)
		return claim.LostFor(driver.ErrNotHeld)
	})
}
