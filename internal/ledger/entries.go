package ledger

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// entries orders the statements about a hold: one call at a time sends them. Every wait for that
// has a context: the call that goes first may wait for a transaction of the one that comes second.
type entries struct {
	taken      chan struct{} // of one: has an element while a call sends statements
	Unanswered bool          // the answer to a release was lost: a hold that is gone is no loss then

	n int // the entries that were not unlocked; 0: the hold counts as released. The ledger's mutex protects n
}

// Lock waits until no other call sends statements about the hold, or until ctx ends.
func (e *entries) Lock(ctx context.Context) error {
	if e.TryLock() {
		return nil
	}
	select {
	case e.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryLock is Lock without waiting.
func (e *entries) TryLock() bool {
	select {
	case e.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock lets the next call send statements.
func (e *entries) Unlock() { <-e.taken }

// Within returns ctx with a second end: when the hold ends, with the cause Over. It bounds the
// waits of a call that needs the hold. Unlock ends the hold before it waits for anything, so no
// such call waits for an Unlock.
func (h *Hold) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	if over := h.Over(); over != nil { // at once, and not in another goroutine
		cancel(over)
	}
	stop := context.AfterFunc(h.ctx, func() { cancel(h.Over()) })
	return within, func() { stop(); cancel(nil) }
}

// Again enters a hold once more. It returns false if the client does not rely on the hold.
func (l *Ledger) Again(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !h.relies() || h.Entries.n == 0 {
		return false
	}
	h.Entries.n++
	return true
}

// Leave takes back one entry of a hold, and returns the number of those before. With the last one
// the hold counts as released.
func (l *Ledger) Leave(h *Hold) (before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = h.Entries.n
	h.Entries.n = max(before-1, 0)
	return before
}

// Entered returns the number of a hold's entries.
func (l *Ledger) Entered(h *Hold) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.Entries.n
}

// Once refuses to change a hold that was entered again: other code relies on the hold as it is.
// MUST be called with Entries locked: then no entry is added.
func (l *Ledger) Once(h *Hold) error {
	if n := l.Entered(h); n > 1 {
		return fmt.Errorf("%w: the lock was entered %d times", driver.ErrUnsupported, n)
	}
	return nil
}
