package client

import (
	"context"
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
	claim   *ledger.Claim
	entered bool // another entry of a lock that its owner had

	mu       sync.Mutex // one Unlock, or Detach, at a time
	unlocked bool
	outcome  error // the result of Unlock
}

// ErrNilLock is the error for a lock that no client returned.
var ErrNilLock = fmt.Errorf("%w: the lock is nil", ErrInvalidOption)

// Valid reports whether a client returned the lock.
func (l *Lock) Valid() bool { return l != nil && l.claim != nil }

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.claim.Request.Name }

// Token returns the fencing token.
func (l *Lock) Token() int64 { return l.claim.Token() }

// Entered reports whether the owner had the name already, in this client, and entered it again.
func (l *Lock) Entered() bool { return l.entered }

// Context ends when the lock does.
func (l *Lock) Context() context.Context { return l.claim.Context() }

// Shared reports whether others may have the name as well, or whether that is not known.
func (l *Lock) Shared() bool {
	m := l.claim.Grant.Mode.Load()
	return m.Vague() || m.Shared()
}

// Until returns when the lock ends if its client does not reach the database any more from now on;
// the zero time for a lock that is not held.
func (l *Lock) Until() time.Time {
	claim := l.claim
	if !l.client.ledger.Relies(claim) {
		return time.Time{}
	}
	end := claim.Grant.In.Deadline()
	if claim.Fixed() {
		end = min(end, claim.Expiry())
	}
	return time.Now().Add(end - l.client.config.Clock.Now())
}

// Asked receives the reasons of Ask. From the first call on, the client listens for them.
func (l *Lock) Asked() <-chan string {
	l.claim.Grant.In.Waiters().Listen()
	return l.client.ledger.Asked(l.claim)
}

// Unlock takes back one entry. With the last entry the lock is released. A second call returns the
// result of the first, unless that one can be retried.
func (l *Lock) Unlock(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, l.claim)
	defer cancel()
	return l.unlock(ctx)
}

// Do calls f with a context that ends when ctx does, or the lock.
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context) error) error {
	inner, cancel := contract.UntilEither(l.claim.Under(ctx, l.client.owners), l.Context())
	defer cancel(context.Canceled)
	return f(inner)
}

// Acquire is Lock of package dblock, and with wait false TryLock. It completes the request of w.
func (c *Client) Acquire(ctx context.Context, w *Want, wait bool) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if ctx.Err() != nil {
		return nil, store.Ended(ctx, ctx.Err())
	}
	if err := c.store.Begin(); err != nil {
		return nil, err
	}
	defer c.store.Done()
	ctx, cancel := contract.WaitAtMost(ctx, w.AtMost)
	defer cancel()
	ctx, obs := c.report.start(ctx, attemptAt(&w.Request, wait))
	a := attempt{
		Client: c, r: &w.Request, owner: c.owners.Of(ctx, w.Owner), wait: wait, unrecorded: w.Unrecorded,
	}
	claim, err := a.acquire(ctx)
	if err != nil {
		obs.end(0, err)
		return nil, err
	}
	l := c.handle(claim, obs, a.entered)
	l.watch(w.Progress)
	return l, nil
}

// watch starts the watch over the holder's progress. A lock that is entered again keeps its watch.
func (l *Lock) watch(every time.Duration) {
	if every != 0 && !l.entered {
		l.client.ledger.WatchProgress(l.claim, every, func() { l.client.stall(l.claim, every) })
	}
}

// Progress reports that the holder makes progress.
func (l *Lock) Progress() { l.client.ledger.Progress(l.claim) }

// handle makes the handle of a lock, which is new or was entered again.
func (c *Client) handle(claim *ledger.Claim, obs *observation, entered bool) *Lock {
	l := &Lock{client: c, claim: claim, entered: entered}
	if entered {
		obs.end(l.Token(), nil)
	} else {
		c.report.acquired(obs, claim)
	}
	return l
}
