package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// Lock is a handle of a lock that is held, or was: one for each call that acquired or entered it.
// It is unlocked once.
type Lock struct {
	client  *Client
	hold    *ledger.Hold
	entered bool // another entry of a hold that its owner had

	mu       sync.Mutex // one Unlock, or Detach, at a time
	unlocked bool
	outcome  error // the result of Unlock
}

// ErrNilLock is the error for a lock that no client returned.
var ErrNilLock = fmt.Errorf("%w: the lock is nil", ErrInvalidOption)

// Valid reports whether a client returned the lock.
func (l *Lock) Valid() bool { return l != nil && l.hold != nil }

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.hold.Name }

// Token returns the fencing token.
func (l *Lock) Token() int64 { return l.hold.Mode.Load().Token }

// Entered reports whether the owner had the name already, in this client, and entered it again.
func (l *Lock) Entered() bool { return l.entered }

// Context ends when the lock does.
func (l *Lock) Context() context.Context { return l.hold.Context() }

// Shared reports whether others may have the name as well, or whether that is not known.
func (l *Lock) Shared() bool {
	m := l.hold.Mode.Load()
	return m.Vague() || m.Shared()
}

// Until returns when the lock ends if its client does not reach the database any more from now on;
// the zero time for a lock that is not held.
func (l *Lock) Until() time.Time {
	h := l.hold
	if !l.client.ledger.Relies(h) {
		return time.Time{}
	}
	end := h.In.Deadline()
	if h.Fixed() {
		end = min(end, h.Expiry())
	}
	return time.Now().Add(end - l.client.config.Clock.Now())
}

// Asked receives the reasons of Ask. From the first call on, the client listens for them.
func (l *Lock) Asked() <-chan string {
	l.hold.In.Waiters().Listen()
	return l.client.ledger.Asked(l.hold)
}

// Unlock takes back one entry. With the last entry the lock is released. A second call returns the
// result of the first, unless that one can be retried.
func (l *Lock) Unlock(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, l.hold)
	defer cancel()
	return l.unlock(ctx)
}

// unlock is Unlock that ends with ctx, also where that has ended before.
func (l *Lock) unlock(ctx context.Context) error {
	if err := store.LockWithin(ctx, l.mu.TryLock); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if !l.unlocked {
		l.outcome = l.client.unlock(ctx, l.hold)
		l.unlocked = l.outcome == nil || errors.Is(l.outcome, ErrLost)
	}
	return l.outcome
}

// Run calls f with a context that ends when ctx does, or the lock.
func (l *Lock) Run(ctx context.Context, f func(ctx context.Context) error) error {
	inner, cancel := contract.UntilEither(l.hold.Under(ctx, l.client.owners), l.Context())
	defer cancel(context.Canceled)
	return f(inner)
}

// Acquire is Lock of package dblock, and with wait false TryLock. It completes the request of w.
func (c *Client) Acquire(ctx context.Context, w *Want, wait bool) (*Lock, error) {
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
	ctx, cancel := contract.WaitAtMost(ctx, w.AtMost)
	defer cancel()
	ctx, obs := c.tellStart(ctx, attemptAt(&w.Request, wait))
	h, err := c.acquire(ctx, &w.Request, c.owners.Of(ctx, w.Owner), wait)
	if err != nil {
		obs.end(0, err)
		return nil, err
	}
	l := c.handle(h, obs, h.ID != w.Attempt)
	l.watch(w.Progress)
	return l, nil
}

// watch starts the watch over the holder's progress. A lock that is entered again keeps its watch.
func (l *Lock) watch(every time.Duration) {
	if every != 0 && !l.entered {
		l.client.ledger.WatchProgress(l.hold, every, func() { l.client.stall(l.hold, every) })
	}
}

// Progress reports that the holder makes progress.
func (l *Lock) Progress() { l.client.ledger.Progress(l.hold) }

// handle makes the handle of a hold, which is new or was entered again.
func (c *Client) handle(h *ledger.Hold, obs *observation, entered bool) *Lock {
	l := &Lock{client: c, hold: h, entered: entered}
	if entered {
		obs.end(l.Token(), nil)
	} else {
		c.tellAcquired(obs, h)
	}
	return l
}
