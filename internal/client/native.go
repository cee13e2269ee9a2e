package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dblock-go/dblock/driver"
)

// Keeper is a driver.Keeper without its type of transactions.
type Keeper interface {
	Acquire(ctx context.Context, name string, shared, wait bool) (driver.Possession, bool, error)
	Close(ctx context.Context) error
}

// native is a client whose locks are the server's own: no session, no queue table and no token. The
// keeper knows which waiter is next, and a holder holds a lock for as long as the keeper's
// connection lives.
type native struct {
	*Client
	keeper  Keeper
	waiting *atomic.Int64 // calls
}

func (n native) allow(w *Want) error {
	if w.Owner != nil || w.Lease != 0 || w.Metadata != "" || w.MinHold != 0 || w.shared() && w.Of != driver.Readers {
		return fmt.Errorf("%w: Owner, Lease, MinHold, Permits and Metadata need a lock in a table", driver.ErrUnsupported)
	}
	return nil
}

func (native) schema(context.Context) error { return nil }

func (n native) close() error { return n.keeper.Close(n.tidying) }

// acquire: to enter again costs nothing.
func (n native) acquire(ctx context.Context, r *driver.Request, o Owner, wait bool) (*hold, error) {
	k := entry{r.Name, o}
	if !n.entries.lock(ctx, k, wait) {
		return nil, n.refused(ctx.Err())
	}
	defer n.entries.unlock(k)
	if h, entered, err := n.reenter(ctx, r, o); entered || err != nil {
		return h, err
	}
	within, cancel := untilClosed(ctx, n.background)
	defer cancel()
	if wait {
		n.waiting.Add(1)
	}
	possession, got, err := n.keeper.Acquire(within, r.Name, r.Units > 0, wait)
	if wait {
		n.waiting.Add(-1)
	}
	switch {
	case err != nil && n.closing():
		return nil, ErrClosed
	case err != nil && ctx.Err() != nil && errors.Is(err, driver.ErrUnavailable): // it saw no holder
		return nil, worded{err.Error(), driver.Join(err, context.Cause(ctx))}
	case err != nil && ctx.Err() != nil && !wait: // it would have said so, had it seen a holder
		return nil, n.unseen(ctx, err)
	case err != nil && ctx.Err() != nil:
		return nil, n.refused(ended(ctx, err))
	case err != nil:
		return nil, err
	case !got:
		return nil, n.refused(nil)
	}
	r.Attempt = rand.Text()
	h := &hold{claim: n.registry.request(r.Name, r.Attempt), grip: grasp{n, possession}, owner: o, entries: 1, since: n.moment()}
	h.mode.Store(&mode{units: r.Units, of: r.Of})
	h.ctx, h.cancel = context.WithCancelCause(h.under(context.WithoutCancel(ctx), n.owners))
	over := make(chan struct{})
	h.unwatch = func() { close(over) } // called once, by whatever takes the hold out of the registry
	_, _, added := n.registry.add(h, func() bool {
		n.underWay.Go(func() {
			select {
			case <-possession.Lost():
				n.lose(h, possession.Cause())
			case <-over:
			}
		})
		return true
	})
	if !added { // Close gives back the keeper's connection, and this with it
		return nil, ErrClosed
	}
	return h, nil
}

func (n native) lockTx(ctx context.Context, name string, shared, wait bool, tx Tx) error {
	_, locked, err := tx.Lock(ctx, name, shared, wait, nil, nil)
	switch {
	case err != nil && ctx.Err() != nil && !wait:
		return n.unseen(ctx, err)
	case err != nil && ctx.Err() != nil:
		return n.refused(ended(ctx, err))
	case err != nil:
		return err
	case !locked:
		return n.refused(nil)
	}
	return nil
}

// grasp is the grip of a hold on one of the server's own locks.
type grasp struct {
	native
	driver.Possession
}

func (g grasp) session() (*clientSession, bool) { return nil, false }

// over: the context of the hold says it all.
func (g grasp) over() error { return nil }

func (g grasp) settle(context.Context, *hold) error { return nil }

// entered: the server knows of no entries.
func (g grasp) entered(context.Context, *hold, int) error { return nil }

// release may be called again: the keeper releases once.
func (g grasp) release(ctx context.Context, h *hold) error {
	err := g.Release(ctx)
	if errors.Is(err, driver.ErrNotHeld) {
		err = lost(driver.Join(g.Cause(), err))
	}
	if err == nil || errors.Is(err, ErrLost) {
		g.registry.transition(h.claim, finish)
	}
	return err
}
