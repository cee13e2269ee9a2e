package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

// hold is a name that this client holds, or a share of it, entered once or several times by the
// same owner.
type hold struct {
	*attempt
	in        *store.Session // that has it in the database
	member    *cohort.Member // by which it was waited for; nil: it was granted without waiting
	owner     Owner
	mode      atomic.Pointer[mode]
	contended bool // others were waiting when it was granted
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unwatch   func()                   // stops the watch over its own end; nil: it ends with its session only
	fixed     bool                     // it has a fixed lease
	end       time.Duration            // of the fixed lease, on the client's clock; the registry's mutex protects it
	begun     int                      // how often UnlockTx was begun; likewise
	answered  int                      // how often the database has answered it; likewise
	guardable atomic.Bool              // the row that Guard locks was made
	stood     atomic.Bool              // it was held at a heartbeat
	progress  atomic.Pointer[progress] // nil: nobody watches whether its holder gets on
	all       any                      // the Locks that it was taken with; the registry's mutex protects it
	metadata  string
	lease     time.Duration // of the request that it was granted for; 0: none
	minHold   time.Duration // likewise
	began     time.Duration // when it was granted, by the client's clock
	observed  atomic.Int32  // what the observer knows of it
	asked     chan string   // why others want it; nil: nobody listens. The registry's mutex protects it
	reason    string        // the latest of these; likewise

	conversion sync.RWMutex // locked by what changes the mode, and shared by what relies on it

	mu         sync.Mutex // protects what follows, and orders what is written of it
	entries    int        // how often its owner has entered it and not unlocked; 0: it counts as released
	unanswered bool       // the answer to its release was lost: not to be held is no loss any more
}

// held is the hold as the database knows it.
func (h *hold) held() driver.Held {
	m := h.mode.Load()
	return driver.Held{Name: h.name, Session: h.in.ID, Token: m.last, Shared: m.shared()}
}

// ending is how a hold ends that was not unlocked.
type ending struct {
	event event
	cause error // of its context's end
}

// gone is how a hold ends that the database does not have any more: lost, unless an UnlockTx may
// have released it. That the transaction was rolled back, and the lock taken over then, cannot be
// told from its commit. What had a fixed lease stays known while its session lives: a transaction
// that it guards may still be open, and only a takeover looks for that. Of everything else the
// database's rest is nobody's, and is given back. MUST be called with the registry's mutex locked.
func (h *hold) gone(reason error) ending {
	alive := h.in.Over() == nil
	if h.state == ReleasingTx && alive && !errors.Is(reason, errLeaseOver) {
		return ending{commit, fmt.Errorf("%w: released by UnlockTx", driver.ErrNotHeld)}
	}
	cause := fmt.Errorf("dblock: %q: %w", h.name, lost(reason))
	if h.fixed && alive {
		return ending{expire, cause}
	}
	return ending{lose, cause}
}

// over is why the hold has ended, or nil.
func (h *hold) over() error { return contract.EndOf(h.ctx) }

// ended is how a hold has ended that was not unlocked, or nil.
func (h *hold) ended() error {
	if cause := context.Cause(h.ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) {
		return h.over()
	}
	return nil
}

// under makes a context the hold's own: the same owner enters again under it, and Unlock knows that
// it ends with the hold.
func (h *hold) under(ctx context.Context, o *owners) context.Context {
	return context.WithValue(o.with(ctx, h.owner, deadlock.PathOf(h.id)), h, true)
}

// encloses reports whether ctx is under the hold. MUST be called with the registry's mutex locked.
func (h *hold) encloses(ctx context.Context) bool {
	return ctx.Value(h) != nil || h.all != nil && ctx.Value(h.all) != nil
}

// ask passes on why others want the lock, once. MUST be called with the registry's mutex locked.
func (h *hold) ask(reason string) {
	if reason == "" || reason == h.reason {
		return
	}
	h.reason = reason
	if h.asked == nil {
		return
	}
	select {
	case <-h.asked:
	default:
	}
	h.asked <- reason
}

// listen is where the reasons are received, also one from before. MUST be called with the
// registry's mutex locked.
func (h *hold) listen() <-chan string {
	if h.asked == nil {
		h.asked = make(chan string, 1)
		if h.reason != "" {
			h.asked <- h.reason
		}
	}
	return h.asked
}

// contradiction is why a request of the same owner cannot enter the hold, or nil: it asks for
// something that the hold is not. What a request does not ask for contradicts nothing.
func (h *hold) contradiction(r *driver.Request) error {
	differ := func(option string, asked, held any, none bool) error {
		if none {
			held = "none"
		}
		return fmt.Errorf("%w: %s: asked for with %v, and held with %v: enter it with the same or without", ErrInvalidOption, option, asked, held)
	}
	switch {
	case r.Lease != 0 && r.Lease != h.lease:
		return differ("Lease", r.Lease, h.lease, h.lease == 0)
	case r.MinHold != 0 && r.MinHold != h.minHold:
		return differ("MinHold", r.MinHold, h.minHold, h.minHold == 0)
	case r.Metadata != "" && r.Metadata != h.metadata:
		return differ("Metadata", r.Metadata, h.metadata, h.metadata == "")
	}
	return nil
}
