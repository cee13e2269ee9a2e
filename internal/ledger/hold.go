package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Hold is a name that this client holds, or a share of it, entered once or several times by the
// same owner. The ledger's mutex protects alarm, asks and all.
type Hold struct {
	*Attempt
	In      *store.Session // the session that has the hold in the database
	Member  *cohort.Member // the member that waited for the grant; nil: it was granted without waiting
	Owner   Owner
	Request protocol.Request // the request that was granted
	Grant   protocol.Grant   // of the cohort
	Began   time.Duration    // when it was granted, by the client's clock
	Mode    modeBox
	Entries entries
	// Observed is the state of the hold for the observer. Package ledger does not use it.
	Observed atomic.Int32

	ctx      context.Context
	cancel   context.CancelCauseFunc
	lease    *clock.Deadline // of a fixed lease; nil: the hold ends with its session only
	outlives atomic.Bool     // UnlockTx has released the hold: its context stays open, see cut
	alarm    alarm
	progress atomic.Pointer[progress] // nil: no watch
	asks     asks
	all      any // the Locks that it was taken with
}

// alarm ends a hold by itself, or the context of one that UnlockTx has released.
type alarm struct {
	stop func() // nil: the hold ends with its session only
}

// asks are the reasons with which others ask for the lock.
type asks struct {
	latest string
	to     chan string // nil: Asked was not called
}

// NewHold makes the hold of a grant. Its context is no child of the session's: revoke ends the
// contexts of all holds of a session one directly after the other.
func (l *Ledger) NewHold(
	ctx context.Context, s *store.Session, k *Attempt, r *protocol.Request, o Owner, g protocol.Grant, m *cohort.Member,
) *Hold {
	h := &Hold{Attempt: k, In: s, Member: m, Owner: o, Request: *r, Grant: g, Began: l.config.Clock.Now()}
	h.Entries = entries{taken: make(chan struct{}, 1), n: 1}
	mode := Mode{Token: g.Token, Last: g.Token, Units: r.Units, Of: r.Of}
	if m != nil {
		mode.Token = m.Token()
	}
	h.Mode.Store(&mode)
	inner, cancel := context.WithCancelCause(h.Under(context.WithoutCancel(ctx), l.Owners))
	h.ctx, h.cancel = contract.Asking(inner, h.lapse), cancel
	return h
}

// Context ends with the hold. The cause is the reason of that end. It answers by the clock.
func (h *Hold) Context() context.Context { return h.ctx }

// lapse ends the context of a hold whose session or fixed lease is over, by the clock now. The
// goroutine that was late then finds the hold in the ledger, and takes it out.
func (h *Hold) lapse() {
	if h.outlives.Load() {
		return
	}
	if over := h.In.Over(); over != nil {
		h.cancel(h.lost(over))
	} else if h.lease != nil && h.lease.Passed() {
		h.cancel(h.lost(contract.ErrLeaseOver))
	}
}

// lost returns the cause with which the context of a lost hold ends.
func (h *Hold) lost(reason error) error {
	return fmt.Errorf("dblock: %q: %w", h.Name, contract.Lost(reason))
}

// Fixed reports whether the hold has a fixed lease.
func (h *Hold) Fixed() bool { return h.Grant.Lease != 0 }

// Held returns the hold as the database knows it.
func (h *Hold) Held() protocol.Held {
	m := h.Mode.Load()
	return protocol.Held{Name: h.Name, Session: h.In.ID, Token: m.Last, Shared: m.Shared()}
}

// Claim returns the hold as the database lists it.
func (h *Hold) Claim() driver.Claim {
	return driver.Claim{Session: h.In.ID, Name: h.Name, Attempt: h.ID, Token: h.Mode.Load().Last}
}

// Event returns an event of the history about the hold.
func (h *Hold) Event(kind, detail string) protocol.Event {
	return protocol.Event{
		Name: h.Name, Kind: kind, Session: h.In.ID, Token: h.Mode.Load().Token,
		Host: h.Owner.Host, Thread: h.Owner.Thread, Detail: detail, Metadata: h.Request.Metadata,
	}
}

// Over returns the reason why the hold has ended, or nil.
func (h *Hold) Over() error { return contract.EndOf(h.ctx) }

// Ended returns the reason why the hold has ended without Unlock, or nil.
func (h *Hold) Ended() error {
	cause := context.Cause(h.ctx)
	if errors.Is(cause, contract.ErrLost) || errors.Is(cause, contract.ErrClosed) {
		return h.Over()
	}
	return nil
}

// Under puts the hold and its owner into a context: calls under it enter the hold again, and Unlock
// recognises a context that ends with the hold.
func (h *Hold) Under(ctx context.Context, o *Owners) context.Context {
	return context.WithValue(o.With(ctx, h.Owner, deadlock.PathOf(h.ID)), h, true)
}

// encloses reports whether ctx is under the hold. MUST be called with the ledger's mutex locked.
func (h *Hold) encloses(ctx context.Context) bool {
	return ctx.Value(h) != nil || h.all != nil && ctx.Value(h.all) != nil
}

// ask passes on the reason of an Ask, once. MUST be called with the ledger's mutex locked.
func (h *Hold) ask(reason string) {
	if reason = protocol.Reason(reason); reason == "" || reason == h.asked {
		return
	}
	h.asked, h.asks.latest = reason, reason
	if h.asks.to == nil {
		return
	}
	select {
	case <-h.asks.to:
	default:
	}
	h.asks.to <- reason
}

// Asked returns the channel that receives the reasons of Ask, the latest earlier one included.
func (l *Ledger) Asked(h *Hold) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.asks.to == nil {
		h.asks.to = make(chan string, 1)
		if h.asks.latest != "" {
			h.asks.to <- h.asks.latest
		}
	}
	return h.asks.to
}

// Contradiction returns the reason why a request of the same owner cannot enter the hold, or nil:
// the request has an option with which the hold was not acquired. An option that the request leaves
// out contradicts nothing.
func (h *Hold) Contradiction(r *protocol.Request) error {
	differ := func(option string, asked, held any, none bool) error {
		if none {
			held = "none"
		}
		return fmt.Errorf("%w: %s: asked for with %v, and held with %v: enter it with the same or without",
			contract.ErrInvalidOption, option, asked, held)
	}
	switch has := &h.Request; {
	case r.Lease != 0 && r.Lease != has.Lease:
		return differ("Lease", r.Lease, has.Lease, has.Lease == 0)
	case r.MinHold != 0 && r.MinHold != has.MinHold:
		return differ("MinHold", r.MinHold, has.MinHold, has.MinHold == 0)
	case r.Metadata != "" && r.Metadata != has.Metadata:
		return differ("Metadata", r.Metadata, has.Metadata, has.Metadata == "")
	}
	return nil
}
