package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Claim is what a caller has: a request that waits for its turn, and then a lock, entered once or
// several times by the same owner. The ledger's mutex protects the unexported fields.
type Claim struct {
	Owner   Owner
	Request protocol.Request
	Grant   *Grant        // that serves the claim; it changes only while the claim waits
	Began   time.Duration // when the claim got the lock, by the client's clock
	// Observed is the state of the claim for the observer. Package ledger does not use it.
	Observed atomic.Int32
	// Unrecorded keeps the grant and the release of the lock out of the history. Package ledger
	// does not use it.
	Unrecorded bool

	state   ClaimState
	turn    chan error // receives once: nil if it is the claim's turn, else the error; nil: nobody waits for it
	at      int        // the claim's number in its grant, from 0
	token   atomic.Int64
	entries int // that were not unlocked; 0: the lock counts as released
	pledge  pledge

	ctx      context.Context
	cancel   context.CancelCauseFunc
	lease    *clock.Deadline // of a fixed lease; nil: the lock ends with its session only
	outlives atomic.Bool     // UnlockTx has released the lock: its context stays open, see cut
	alarm    alarm
	progress atomic.Pointer[progress] // nil: no watch
	asks     asks
	all      any // the Locks that it was taken with
}

// ClaimState is the stage of a claim.
type ClaimState int

// The states of a claim.
const (
	Waiting  ClaimState = iota // nobody relies on the lock
	Held                       // the caller relies on the lock
	Lent                       // the lease stands behind the lock of a transaction
	Pledged                    // UnlockTx was called: a transaction may release the lock
	Released                   // by Unlock, and the grant goes on; or by UnlockTx, and the context is open
	Ended
)

var claimStates = [...]string{"Waiting", "Held", "Lent", "Pledged", "Released", "Ended"}

func (s ClaimState) String() string { return claimStates[s] }

// claimEvent happens to a claim.
type claimEvent int

const (
	hold     claimEvent = iota // its turn has come, and the caller relies on that
	lend                       // a transaction gets the name that the lease was acquired for
	promise                    // UnlockTx is about to send its statement
	rollback                   // every UnlockTx failed, or the transaction of one that succeeded was rolled back
	commit                     // the transaction of UnlockTx was committed
	unlock                     // Unlock or Close
	lose                       // the lock ended, and was not unlocked
	expire                     // the same, by the end of a fixed lease
	finish                     // the claim gave up or was refused, the next one has the lock, or the grant is gone
)

var claimEvents = [...]string{
	"hold", "lend", "promise", "rollback", "commit", "unlock", "lose", "expire", "finish",
}

func (e claimEvent) String() string { return claimEvents[e] }

var ofClaims = map[ClaimState]map[claimEvent]ClaimState{
	Waiting: {hold: Held, finish: Ended},
	Held:    {lend: Lent, promise: Pledged, unlock: Released, lose: Ended, expire: Ended},
	Lent:    {finish: Ended},
	Pledged: {
		promise: Pledged, rollback: Held, commit: Released, unlock: Released, lose: Ended, expire: Ended,
	},
	Released: {finish: Ended},
}

// can reports whether an event is possible.
func (c *Claim) can(e claimEvent) bool {
	_, possible := ofClaims[c.state][e]
	return possible
}

// relies reports whether the caller relies on the lock.
func (c *Claim) relies() bool { return c.state == Held }

// stands reports whether the database has the lock for the claim, as far as the client knows.
func (c *Claim) stands() bool { return c.state == Held || c.state == Pledged }

// happen makes every transition of a claim, with what follows for its grant. An event that is
// impossible changes nothing, and is logged as an error. MUST be called with mu locked.
func (l *Ledger) happen(c *Claim, e claimEvent) {
	g := c.Grant
	if !c.can(e) {
		l.impossible(g, c.state, e)
		return
	}
	if e == commit { // before the claim is Released: it stays so, and its context is open
		c.outlives.Store(true)
		l.move(g, vanish)
	}
	stood := c.stands()
	if c.state = ofClaims[c.state][e]; stood != c.stands() {
		l.list(c)
	}
	switch {
	case e == promise:
		c.pledge.open = true
		l.move(g, loseTrack)
	case e == rollback:
		c.pledge.open, c.pledge.kept = false, false
		l.move(g, restore)
	case e == expire:
		l.move(g, loseTrack)
	case e == unlock && (g.state == Uncertain || len(g.waiting) == 0 && !g.mayGrow()):
		l.move(g, leave)
	case e == lose:
		l.move(g, vanish)
	}
}

// list keeps the claims of a name that stand. MUST be called with mu locked.
func (l *Ledger) list(c *Claim) {
	n := l.of(c.Grant.Name)
	if c.stands() {
		n.claims = append(n.claims, c)
		return
	}
	n.claims = slices.DeleteFunc(n.claims, func(other *Claim) bool { return other == c })
	l.trim(c.Grant.Name)
}

// endBy lets an event end a claim. It returns false if the claim has ended already.
func (l *Ledger) endBy(c *Claim, e claimEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	possible := c.can(e)
	if possible {
		l.happen(c, e)
	}
	return possible
}

// Request registers an attempt before it is sent, with one claim.
func (l *Ledger) Request(s *store.Session, r *protocol.Request, o Owner) *Claim {
	c := &Claim{Owner: o, Request: *r, entries: 1}
	c.Grant = newGrant(s, r.Name, r.Attempt, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[r.Attempt] = c.Grant
	return c
}

// open makes the context of a claim. It is no child of the session's: revoke ends the contexts of
// all claims of a session one directly after the other.
func (l *Ledger) open(ctx context.Context, c *Claim) {
	inner, cancel := context.WithCancelCause(c.Under(context.WithoutCancel(ctx), l.Owners))
	c.ctx, c.cancel = contract.Asking(inner, c.lapse), cancel
}

// Context ends with the lock. The cause is the reason of that end. It answers by the clock.
func (c *Claim) Context() context.Context { return c.ctx }

// lapse ends the context of a claim whose session or fixed lease is over, by the clock now. The
// goroutine that was late then finds the claim in the ledger, and ends it there.
func (c *Claim) lapse() {
	if c.outlives.Load() {
		return
	}
	if over := c.Grant.In.Over(); over != nil {
		c.cancel(c.lost(over))
	} else if c.lease != nil && c.lease.Passed() {
		c.cancel(c.lost(contract.ErrLeaseOver))
	}
}

// lost returns the cause with which the context of a lost lock ends.
func (c *Claim) lost(reason error) error {
	return fmt.Errorf("dblock: %q: %w", c.Request.Name, contract.Lost(reason))
}

// Token returns the fencing token of the claim.
func (c *Claim) Token() int64 { return c.token.Load() }

// Fixed reports whether the lock has a fixed lease.
func (c *Claim) Fixed() bool { return c.Grant.Given.Lease != 0 }

// Held returns the lock as the database knows it.
func (c *Claim) Held() protocol.Held {
	m := c.Grant.Mode.Load()
	return protocol.Held{Name: c.Grant.Name, Session: c.Grant.In.ID, Token: m.Last, Shared: m.Shared()}
}

// AsListed returns the lock as the database lists it.
func (c *Claim) AsListed() driver.Claim {
	g := c.Grant
	return driver.Claim{Session: g.In.ID, Name: g.Name, Attempt: g.ID, Token: g.Mode.Load().Last}
}

// Event returns an event of the history about the claim.
func (c *Claim) Event(kind, detail string) protocol.Event {
	return protocol.Event{
		Name: c.Request.Name, Kind: kind, Session: c.Grant.In.ID, Token: c.Token(),
		Host: c.Owner.Host, Thread: c.Owner.Thread, Detail: detail, Metadata: c.Request.Metadata,
	}
}

// Over returns the reason why the lock has ended, or nil.
func (c *Claim) Over() error { return contract.EndOf(c.ctx) }

// Revoked returns the reason why the lock has ended without Unlock, or nil.
func (c *Claim) Revoked() error {
	_ = c.ctx.Err() // asks the clock
	cause := context.Cause(c.ctx)
	if errors.Is(cause, contract.ErrLost) || errors.Is(cause, contract.ErrClosed) {
		return c.Over()
	}
	return nil
}

// Under puts the claim and its owner into a context: calls under it enter the lock again, and
// Unlock recognises a context that ends with the lock.
func (c *Claim) Under(ctx context.Context, o *Owners) context.Context {
	return context.WithValue(o.With(ctx, c.Owner, deadlock.PathOf(c.Grant.ID)), c, true)
}

// Within returns ctx with a second end: when the lock ends, with the cause Over. It bounds the
// waits of a call that needs the lock. Unlock ends the lock before it waits for anything, so no
// such call waits for an Unlock.
func (c *Claim) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	if over := c.Over(); over != nil { // at once, and not in another goroutine
		cancel(over)
	}
	stop := context.AfterFunc(c.ctx, func() { cancel(c.Over()) })
	return within, func() { stop(); cancel(nil) }
}

// encloses reports whether ctx is under the claim. MUST be called with the ledger's mutex locked.
func (c *Claim) encloses(ctx context.Context) bool {
	return ctx.Value(c) != nil || c.all != nil && ctx.Value(c.all) != nil
}

// Contradiction returns the reason why a request of the same owner cannot enter the lock, or nil:
// the request has an option with which the lock was not acquired. An option that the request leaves
// out contradicts nothing.
func (c *Claim) Contradiction(r *protocol.Request) error {
	differ := func(option string, asked, held any, none bool) error {
		if none {
			held = "none"
		}
		return fmt.Errorf("%w: %s: asked for with %v, and held with %v: enter it with the same or without",
			contract.ErrInvalidOption, option, asked, held)
	}
	switch has := &c.Request; {
	case r.Lease != 0 && r.Lease != has.Lease:
		return differ("Lease", r.Lease, has.Lease, has.Lease == 0)
	case r.MinHold != 0 && r.MinHold != has.MinHold:
		return differ("MinHold", r.MinHold, has.MinHold, has.MinHold == 0)
	case r.Metadata != "" && r.Metadata != has.Metadata:
		return differ("Metadata", r.Metadata, has.Metadata, has.Metadata == "")
	}
	return nil
}
