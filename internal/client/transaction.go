package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// guardTimeout is how long Guard waits for the lock's row, where it has to make the guard's: for
// transactions of dblock's own, and not for the application's, which may be the caller's own.
const guardTimeout = time.Second

// UnlockTx releases locks with a transaction, if that commits. It returns the name that failed with
// the error. The transaction may have released the locks before that one.
func (c *Client) UnlockTx(ctx context.Context, tx Tx, locks ...*Lock) (failed string, err error) {
	locks, failed, err = c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	for _, l := range locks {
		if err := l.unlockTx(ctx, tx); err != nil {
			return l.Name(), err
		}
	}
	return "", nil
}

// ofTx validates the locks of a call, before any I/O. It returns them in the order of their names,
// each once: transactions that release shares of several names must not wait for each other.
func (c *Client) ofTx(locks []*Lock) (ordered []*Lock, failed string, err error) {
	if len(locks) == 0 {
		return nil, "", fmt.Errorf("%w: no locks", ErrInvalidOption)
	}
	for _, l := range locks {
		switch {
		case !l.Valid():
			return nil, "", ErrNilLock
		case l.client != c:
			return nil, l.Name(), fmt.Errorf("%w: the lock is of another client", ErrInvalidOption)
		}
	}
	byName := func(a, b *Lock) int { return strings.Compare(a.Name(), b.Name()) }
	return slices.Compact(slices.SortedStableFunc(slices.Values(locks), byName)), "", nil
}

func (l *Lock) unlockTx(ctx context.Context, tx Tx) error {
	c, h := l.client, l.hold
	return l.inside(ctx, func() error {
		done, answered, err := c.beginRelease(ctx, h, tx)
		if err != nil {
			return err
		}
		defer done()
		var d driver.Detachment
		if tx.Exclusive() {
			d = h.Member.SplitTx()
		}
		err = tx.Release(ctx, h.Held(), d, h.In.SideConn)
		if errors.Is(err, driver.ErrGuarded) {
			err = fmt.Errorf("the lock guards another transaction that is open: end that first, or unlock after this one: %w", err)
		}
		if other := c.elsewhere(ctx, tx, "", err); other != nil {
			err = other
		}
		answered(err)
		return err
	})
}

// beginRelease takes a hold out of what its owner can enter, before the statement of UnlockTx is
// sent, and keeps its mode as it is until done is called. No other entry can come in between that
// and the look at how many there are.
func (c *Client) beginRelease(ctx context.Context, h *ledger.Hold, tx Tx) (done func(), answered func(err error), err error) {
	if err := lockWithin(ctx, h.Entries.TryLock); err != nil {
		return nil, nil, err
	}
	defer h.Entries.Unlock() // before the statement is sent: Unlock must not wait for that past its context
	if h.Entries.N > 1 {
		return nil, nil, fmt.Errorf("%w: the lock was entered %d times: UnlockTx gives back the last entry only", driver.ErrUnsupported, h.Entries.N)
	}
	done, err = c.fix(ctx, h, tx)
	if err != nil {
		return nil, nil, err
	}
	answered, ok := c.ledger.ReleaseTx(h)
	if !ok {
		done()
		return nil, nil, c.ledger.Unusable(h)
	}
	return done, answered, nil
}

// Guard makes sure that what a transaction writes is written by the holder of all these locks. It
// returns the name that failed with the error. It makes the guards of all before it touches the
// transaction, whose snapshot must show them.
func (c *Client) Guard(ctx context.Context, tx Tx, locks ...*Lock) (failed string, err error) {
	locks, failed, err = c.ofTx(locks)
	if err != nil {
		return failed, err
	}
	proofs := make([]func(), len(locks))
	for i, l := range locks {
		if err := l.inside(ctx, func() (err error) {
			proofs[i], err = l.makeGuard(ctx, tx)
			return err
		}); err != nil {
			return l.Name(), err
		}
	}
	for i, l := range locks {
		if err := l.inside(ctx, func() error { return l.guard(ctx, tx) }); err != nil {
			return l.Name(), err
		}
		proofs[i]()
	}
	return "", nil
}

func (l *Lock) guard(ctx context.Context, tx Tx) error {
	c, h := l.client, l.hold
	done, err := c.fix(ctx, h, tx)
	if err != nil {
		return err
	}
	defer done()
	held := h.Held()
	err = tx.Guard(ctx, held, h.In.SideConn)
	if own := l.Token(); errors.Is(err, driver.ErrNotHeld) && held.Token != own { // it may have been detached since
		held.Token = own
		err = tx.Guard(ctx, held, h.In.SideConn)
	}
	if other := c.elsewhere(ctx, tx, "", err); other != nil {
		return other
	}
	if errors.Is(err, driver.ErrRetry) {
		h.Guardable.Store(false) // the row may be gone: the next transaction finds it made anew
	}
	return err
}

// makeGuard makes the row that Guard locks, unless that was done. After UnlockTx it is done again:
// where the transaction of UnlockTx is open, that fails within a second, and a share lock would
// wait for it. Once the lock is guarded, proven must be called: that transaction was rolled back.
func (l *Lock) makeGuard(ctx context.Context, tx Tx) (proven func(), err error) {
	c, h := l.client, l.hold
	h.Guarded.Store(true) // before the look: a release that does not see it has taken the hold out
	released, proven := c.ledger.ReleasedTx(h)
	switch {
	case !released && !c.ledger.Relies(h):
		return nil, c.ledger.Unusable(h)
	case !released && h.Guardable.Load():
		return proven, nil
	}
	done, err := c.fix(ctx, h, tx)
	if err != nil {
		return nil, err
	}
	defer done()
	briefly := store.Briefly
	briefly.Limit = guardTimeout
	err = c.store.Retry(ctx, briefly, func() error { return tx.MakeGuard(ctx, h.Held(), h.In.SideConn) })
	switch {
	case err == nil:
		h.Guardable.Store(true)
		return proven, nil
	case ctx.Err() == nil && (errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry)):
		err = fmt.Errorf("another transaction, or this one before Guard, has locked the lock's row for longer than %v: %w", guardTimeout, err)
	}
	return nil, err
}

// inside runs a step of a lock in the caller's transaction, unless the lock is known not to be
// held.
func (l *Lock) inside(ctx context.Context, step func() error) error {
	c, h := l.client, l.hold
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.Over(); err != nil {
		return err
	}
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	err := step()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrNotHeld):
		if c.ledger.Relies(h) { // else a transaction is not told whether it was this one
			c.ledger.Lose(err, h)
		}
		if over := h.Over(); over != nil {
			return over
		}
		return lost(err)
	case !h.In.Alive(): // it ended while the step was at work
		return lost(driver.Join(context.Cause(h.In.Context()), err))
	}
	return err
}

// elsewhere returns ErrConfig where a transaction is of another database than the client's: neither
// what it was told there nor what it has locked means anything here. is identifies the
// transaction's database, "" where that was not told. Then the transaction is asked, but only after
// an error that another database would explain: on MySQL it may have its snapshot from then on.
func (c *Client) elsewhere(ctx context.Context, tx Tx, is string, err error) error {
	if is == "" && (errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrRetry)) {
		is, _ = tx.Database(ctx) // where it does not answer, err is what is known
	}
	if is == "" {
		return nil
	}
	mine := c.store.Database(ctx, false)
	if mine != "" && mine != is {
		mine = c.store.Database(ctx, true) // its tables may have been made anew meanwhile
	}
	if mine == "" || mine == is {
		return nil
	}
	return fmt.Errorf("%w: the transaction is of another database than the client's, which has dblock's tables, too", driver.ErrConfig)
}

// fix keeps the mode of a hold as it is, until done is called: that it is held as something else by
// now would look like a loss. The member of a cohort becomes a holder by itself, but not where the
// transaction may be in the way of that: there the engine goes by the cohort.
func (c *Client) fix(ctx context.Context, h *ledger.Hold, tx Tx) (done func(), err error) {
	for {
		if !tx.Exclusive() || h.Mode.Load().Vague() {
			if err := c.settle(ctx, h); err != nil {
				return nil, err
			}
		}
		if err := lockWithin(ctx, h.Mode.TryRLock); err != nil {
			return nil, err
		}
		if !h.Mode.Load().Vague() {
			return h.Mode.RUnlock, nil
		}
		h.Mode.RUnlock() // it became so meanwhile
	}
}
