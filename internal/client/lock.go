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
	entered bool // it is another entry of a hold that its owner had

	mu       sync.Mutex // one Unlock, or Detach, at a time
	unlocked bool
	outcome  error // what Unlock said
}

// ErrNilLock is what a lock that no client returned gets.
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

// Until is when the lock ends if its client does not reach the database any more from now on. The
// zero time for one that is not held any more.
func (l *Lock) Until() time.Time {
	h := l.hold
	if !l.client.ledger.Relies(h) {
		return time.Time{}
	}
	end := h.In.Deadline()
	if h.Fixed() {
		end = min(end, l.client.ledger.Expiry(h))
	}
	return time.Now().Add(end - l.client.config.Clock.Now())
}

// Asked receives why others want the lock. From the first call on the client listens for that.
func (l *Lock) Asked() <-chan string {
	l.hold.In.Waiters().Listen()
	return l.client.ledger.Asked(l.hold)
}

// Unlock takes back one entry; with the last one the lock goes to the next waiter. A second call
// returns what the first did, unless that may be tried again.
func (l *Lock) Unlock(ctx context.Context) error {
	return l.alone(ctx, func(ctx context.Context) error {
		if !l.unlocked {
			l.outcome = l.client.unlock(ctx, l.hold)
			l.unlocked = l.outcome == nil || errors.Is(l.outcome, ErrLost)
		}
		return l.outcome
	})
}

// alone runs what gives the handle up, one at a time; for a few seconds where ctx has ended, or
// ends with the lock.
func (l *Lock) alone(ctx context.Context, f func(ctx context.Context) error) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, l.hold)
	defer cancel()
	if err := store.LockWithin(ctx, l.mu.TryLock); err != nil {
		return err
	}
	defer l.mu.Unlock()
	return f(ctx)
}

// Run calls f with a context that ends when ctx does, or the lock.
func (l *Lock) Run(ctx context.Context, f func(ctx context.Context) error) error {
	inner, cancel := context.WithCancelCause(l.hold.Under(ctx, l.client.owners))
	defer cancel(context.Canceled)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	return f(inner)
}

// Acquire is Lock of package dblock, and with wait false TryLock. It fills in the rest of w.
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

// watch watches whether the holder gets on. A lock that is entered again is watched as it was.
func (l *Lock) watch(every time.Duration) {
	if every != 0 && !l.entered {
		l.client.ledger.WatchProgress(l.hold, every, func() { l.client.stall(l.hold, every) })
	}
}

// Progress says that the holder gets on.
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
