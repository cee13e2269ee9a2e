package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// owner identifies the goroutines that may enter a lock again. Go does not identify goroutines, so
// an owner travels in the context: code called under a lock's context has the same owner.
type owner struct{ _ byte } // not of size 0, so that each has an address of its own

// ownerKey is the key of the owner in a context. Another client does not see this owner.
type ownerKey struct{ of *Client }

// ownerIn returns the owner in ctx, or else a new one.
func (c *Client) ownerIn(ctx context.Context) *owner {
	if o, ok := ctx.Value(ownerKey{c}).(*owner); ok {
		return o
	}
	return &owner{}
}

// claim is a name that one owner wants or has.
type claim struct {
	name string
	*owner
}

// hold is a name that the client has, or is about to get, entered once or several times by the same
// owner.
type hold struct {
	claim
	client  *Client
	settled chan struct{} // closed when it was acquired, or not

	// These fields are set before settled is closed, if the name was acquired.
	possession Possession
	shared     bool
	ctx        context.Context
	end        func(cause error)

	entries int // entries not yet unlocked; 0: unused. Guarded by the client's mu
}

// under makes ctx one of the hold's: the same owner enters again under it, and Unlock knows that
// ctx ends with the hold.
func (h *hold) under(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, ownerKey{h.client}, h.owner), h, true)
}

// entry is the outcome of an attempt to enter a hold.
type entry int

const (
	claimed entry = iota // the owner has no hold of the name: this one is to be acquired
	entered
	busy // another goroutine of the owner is acquiring it
)

// enter enters the owner's hold of a name, or claims the name.
func (c *Client) enter(k claim, shared bool) (*hold, entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.holds[k]
	switch {
	case c.closed:
		return nil, busy, contract.ErrClosed
	case h == nil || h.entries > 0 && h.possession.Kept().Err() != nil:
		h = &hold{claim: k, client: c, settled: make(chan struct{})}
		c.holds[k] = h
		return h, claimed, nil
	case h.entries == 0:
		return h, busy, nil
	case h.shared && !shared:
		return nil, busy, fmt.Errorf("%w: it would wait for itself: it has the name shared: unlock first",
			contract.ErrDeadlock)
	}
	h.entries++
	return h, entered, nil
}

// forget drops a hold that can no longer be entered. MUST NOT be called with mu locked.
func (c *Client) forget(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[h.claim] == h {
		delete(c.holds, h.claim)
	}
}

// handle is a lock that is or was held, one for each call that acquired or entered it. It is
// unlocked once.
type handle struct {
	client *Client
	hold   *hold

	unlocking sync.Once
	last      bool  // it was the last entry to be unlocked
	outcome   error // the result of Unlock, unless last
}

func (l *handle) Name() string             { return l.hold.name }
func (l *handle) Token() int64             { return 0 } // the server's own locks have none
func (l *handle) Context() context.Context { return l.hold.ctx }

// Unlock ends one entry; the last one releases the lock to the next waiter. A second call returns
// the result of the first. After an error of its context, it waits for the answer again.
func (l *handle) Unlock(ctx context.Context) error {
	if ctx == nil {
		return failure("unlock", l.Name(), contract.ErrNilContext)
	}
	h := l.hold
	l.unlocking.Do(func() {
		l.client.mu.Lock()
		defer l.client.mu.Unlock()
		if l.outcome = contract.EndOf(h.ctx); l.outcome != nil {
			return
		}
		h.entries--
		if l.last = h.entries == 0; l.last {
			if l.client.holds[h.claim] == h {
				delete(l.client.holds, h.claim)
			}
			h.end(contract.ErrUnlocked)
		}
	})
	err := l.outcome
	if l.last {
		err = h.release(ctx)
	}
	if err != nil {
		return failure("unlock", l.Name(), err)
	}
	return nil
}

// release releases the lock. It uses a context of its own if ctx has ended, or ends with the hold.
func (h *hold) release(ctx context.Context) error {
	ctx, cancel := contract.ToUnlock(ctx, h)
	defer cancel()
	err := h.possession.Release(ctx)
	if errors.Is(err, driver.ErrNotHeld) {
		return contract.Lost(err)
	}
	return err
}
