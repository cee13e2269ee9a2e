package ledger

import "context"

// order lets one call at a time send statements about a grant. Every wait for that has a context:
// the call that goes first may wait for a transaction of the one that comes second.
type order chan struct{} // of one: has an element while a call sends statements

// Lock waits until no other call sends statements about the grant, or until ctx ends.
func (o order) Lock(ctx context.Context) error {
	if o.TryLock() {
		return nil
	}
	select {
	case o <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryLock is Lock without waiting.
func (o order) TryLock() bool {
	select {
	case o <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock lets the next call send statements.
func (o order) Unlock() { <-o }
