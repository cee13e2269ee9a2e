package dblock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// cleanupTimeout is how long Unlock tries when its context has already ended.
const cleanupTimeout = 5 * time.Second

// Lock is a lock that is held, or was. Each successful Lock or TryLock returns one of its own, to
// be unlocked once. It is safe for concurrent use.
type Lock[TX any] struct {
	client *Client[TX]
	hold   *hold

	mu       sync.Mutex // one Unlock at a time
	unlocked bool
	outcome  error // what Unlock said
}

// hold is a name that this client holds, or a share of it, entered once or several times by the
// same owner.
type hold struct {
	life      *life
	name      string
	attempt   string
	owner     owner
	standing  atomic.Pointer[standing]
	contended bool // others were waiting when it was granted
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unwatch   func()            // stops the watch over session and lease
	native    driver.Possession // of an engine without tables; then life is nil
	fixed     bool              // it has a fixed lease
	end       time.Duration     // of the fixed lease, on the client's clock
	leaving   departure         // UnlockTx was called: it may have been released with a transaction
	guardable atomic.Bool       // the row that Guard locks was made
	vague     atomic.Bool       // a change of its standing was sent whose outcome is not known
	wavering  atomic.Bool       // one was once, and may run late: only the attempt is sure
	yielding  bool              // Downgrade was sent: readers may come in beside it. The client's mutex protects it
	all       any               // the Locks that it was taken with; likewise
	metadata  string
	asked     chan string // why others want it
	reason    string      // the last that was sent there

	grade sync.RWMutex // Downgrade, TryUpgrade and Raise change the standing alone; who relies on it meanwhile reads

	mu     sync.Mutex // protects what follows, and orders what is written of it
	count  int
	unsure bool // a release was sent whose outcome is not known
}

// standing is what a hold is in the database.
type standing struct {
	token int64
	units int // 0: the whole name
	of    int
}

func (s *standing) shared() bool { return s.units > 0 }

// permit reports whether it is units of a semaphore, which nobody enters.
func (s *standing) permit() bool { return s.units > 0 && s.of != driver.Readers }

func (h *hold) held() driver.Held {
	s := h.standing.Load()
	return driver.Held{Name: h.name, Session: h.life.ID, Token: s.token, Shared: s.shared()}
}

// under makes a context the hold's own: the same owner enters again under it, and Unlock knows that
// it ends with the hold.
func (h *hold) under(ctx context.Context, client any) context.Context {
	return context.WithValue(h.owner.in(ctx, client), h, true)
}

// Name returns the name of the lock.
func (l *Lock[TX]) Name() string { return l.hold.name }

// Token returns the fencing token; 0 where the lock has none (postgres.Advisory, mysql.Named): with
// every grant of a name it rises, across crashes, restarts and failovers. Send it along with
// whatever is done under the lock, and let the receiver refuse what comes with a lower one than it
// has seen (Kleppmann, How to do distributed locking, 2016). Entering a lock again does not change
// it; coming back as the same Owner in another process does, and TryUpgrade.
func (l *Lock[TX]) Token() int64 { return l.hold.standing.Load().token }

// Context ends when the lock does: with cause ErrLost before anybody else can hold the name, as
// long as this process is not stopped for longer than its margin; with cause ErrNotHeld at Unlock;
// with ErrClosed at Close. It carries the values of the context that Lock was called with, but does
// not end with it, and it carries the owner: the same name locks again under it at once.
func (l *Lock[TX]) Context() context.Context { return l.hold.ctx }

// Unlock gives the lock back; if it was entered several times, the last Unlock does. The next
// waiter holds it when Unlock returns. With a ctx that has already ended it still tries for a few
// seconds, so that a deferred Unlock needs no context of its own; likewise with one under the
// lock's own, which ends while Unlock is at work.
//
// ErrLost if the lock was lost meanwhile. After any other error the lock counts as given up all the
// same, and the client goes on trying to give it back; Unlock may be called again. Otherwise a
// second call returns what the first did.
//
// After UnlockTx, Unlock waits for that transaction to end: it then finds the lock released, and
// returns nil, or releases it, if the transaction was rolled back.
func (l *Lock[TX]) Unlock(ctx context.Context) error {
	if ctx == nil {
		return &LockError{"unlock", l.hold.name, fmt.Errorf("%w: the context is nil", ErrInvalidOption)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlocked {
		return l.outcome
	}
	ctx, cancel := toUnlock(ctx, l.hold)
	defer cancel()
	err := l.client.leave(ctx, l.hold)
	if err != nil {
		err = &LockError{"unlock", l.hold.name, err}
	}
	l.unlocked = err == nil || errors.Is(err, ErrLost)
	l.outcome = err
	return err
}

// lose ends a hold that was not unlocked.
func (c *Client[TX]) lose(h *hold, reason error) {
	c.drop(h, h.gone(reason))
}

// gone is the cause with which a hold ends that was not unlocked: lost, unless the database has it
// no more after an UnlockTx. That the transaction was rolled back, and the lock taken over then,
// cannot be told from its commit.
func (h *hold) gone(reason error) error {
	if h.leaving.possible() && h.life.Alive() && !errors.Is(reason, errLeaseOver) {
		return fmt.Errorf("%w: released by UnlockTx", ErrNotHeld)
	}
	return fmt.Errorf("dblock: %q: %w", h.name, lost(reason))
}

// enter counts one more entry of the same owner; false if there is nothing to enter any more.
func (c *Client[TX]) enter(ctx context.Context, r driver.Request, o owner) (*hold, bool, error) {
	c.mu.Lock()
	h := c.books.owners[gateKey{r.Name, o}]
	c.mu.Unlock()
	if h == nil {
		return nil, false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := c.sure(ctx, h); err != nil {
		return nil, false, err
	}
	s := h.standing.Load()
	switch {
	case h.count == 0 || h.ctx.Err() != nil || h.native == nil && !h.life.Alive():
		return nil, false, nil
	case s.shared() && r.Units == 0:
		return nil, false, fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", selfDeadlock(o, r.Name, 0))
	case s.shared() && r.Of != s.of:
		return nil, false, fmt.Errorf("%w: this owner reads it", ErrCapacity)
	}
	if h.native == nil { // a native lock knows of no entries
		if err := c.write(ctx, h, h.count+1); err != nil {
			return nil, false, err
		}
	}
	h.count++
	return h, true, nil
}

// toUnlock is the context to unlock with: one of its own for a few seconds where ctx has ended, or
// is under what is unlocked.
func toUnlock(ctx context.Context, under any) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil && ctx.Value(under) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// write records how often a lock was entered, for inspection, and finds out whether it is still
// held.
func (c *Client[TX]) write(ctx context.Context, h *hold, count int) error {
	for {
		err := c.statement(ctx, func(ctx context.Context) error { return c.engine.SetHolds(ctx, h.held(), count) })
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			c.lose(h, err)
			return lost(err)
		case err == nil || !transient(err) || ctx.Err() != nil || h.ctx.Err() != nil || !h.life.Alive():
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// leave takes back one entry; with the last one the lock goes to the next.
func (c *Client[TX]) leave(ctx context.Context, h *hold) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.native == nil && h.life.Context().Err() != nil { // it is about to be said
		c.lose(h, context.Cause(h.life.Context()))
		<-h.ctx.Done() // whoever took it off the books ends it
	}
	switch cause := context.Cause(h.ctx); {
	case errors.Is(cause, ErrLost):
		return errors.Unwrap(cause) // without the lock's name, which the error gets anyway
	case errors.Is(cause, ErrClosed):
		return cause
	}
	if h.count > 1 {
		if h.native == nil {
			err := c.sure(ctx, h)
			if err == nil {
				err = c.write(ctx, h, h.count-1)
			}
			if err != nil {
				return err
			}
		}
		h.count--
		return nil
	}
	h.count = 0
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	c.drop(h, fmt.Errorf("%w: unlocked", ErrNotHeld))
	return c.release(ctx, h)
}

// giveUp releases what Close finds still held.
func (c *Client[TX]) giveUp(h *hold) error {
	if !c.drop(h, ErrClosed) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx := c.tidying
	if h.leaving.possible() { // its transaction may still be open, for as long as the application likes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cleanupTimeout)
		defer cancel()
	}
	if err := c.release(ctx, h); err != nil && !(h.count == 0 && errors.Is(err, ErrLost)) { // an Unlock under way has done it
		return fmt.Errorf("unlocking %q: %w", h.name, err)
	}
	return nil
}

// release gives a lock that is off the books to the next. It is safe to repeat: after an attempt
// whose outcome is not known, not to hold it any more is success. MUST be called with h.mu locked.
func (c *Client[TX]) release(ctx context.Context, h *hold) error {
	if h.native != nil {
		return c.releaseNative(ctx, h)
	}
	began := c.config.clock()
	for {
		asked := c.config.clock()
		var next []driver.Handoff
		err := c.statement(ctx, func(ctx context.Context) (err error) {
			if h.wavering.Load() { // by what is sure of it
				next, err = c.engine.Leave(ctx, h.life.ID, h.name, h.attempt)
			} else {
				next, err = c.engine.Release(ctx, h.held(), h.contended || h.leaving.possible())
			}
			return err
		})
		h.life.hand(h.name, next, asked, err)
		switch {
		case err == nil:
			c.unclaim(h.attempt)
			c.record(h, released, "")
			return nil
		case errors.Is(err, driver.ErrNotHeld):
			c.unclaim(h.attempt)
			if h.leaving.possible() {
				c.promote(ctx, h)
				return nil
			}
			if h.unsure {
				return nil
			}
			return lost(err)
		case !h.life.Alive():
			c.unclaim(h.attempt)
			return lost(errors.Join(context.Cause(h.life.Context()), err))
		case !transient(err) || ctx.Err() != nil,
			errors.Is(err, driver.ErrBusy) && c.background.Err() != nil && asked-began > cleanupTimeout: // Close does not wait for the application's transactions
			h.unsure = true
			c.abandon(h.life, h.name, h.attempt, true)
			return err
		}
		h.unsure = h.unsure || errors.Is(err, ErrUnavailable)
		pause(ctx, 10*time.Millisecond)
	}
}
