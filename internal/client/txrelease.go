package client

import "sync/atomic"

// txRelease is whether a hold may have been released with a transaction of the caller's: UnlockTx
// was called, and nothing has shown since then that its transaction was rolled back. The zero
// value: it was not.
type txRelease struct {
	mark     atomic.Int64 // the step of UnlockTx that set it, 0: none
	steps    atomic.Int64
	recorded atomic.Bool // in the history: its commit may be seen first, and Unlock find nothing later
}

// possible reports whether the hold may have been released so.
func (d *txRelease) possible() bool { return d.mark.Load() != 0 }

// begin notes that UnlockTx is about to release. settle MUST be called with what came of it. Both
// set a mark of their own: what was found out before UnlockTx had locked the row proves nothing
// about its transaction.
func (d *txRelease) begin() (settle func(err error)) {
	mine := d.steps.Add(1)
	before := d.mark.Swap(mine)
	return func(err error) {
		switch {
		case err == nil:
			d.mark.Store(d.steps.Add(1))
		case before == 0:
			d.mark.CompareAndSwap(mine, 0)
		}
	}
}

// seen is called before it is looked whether the lock is held, no transaction being in the way;
// rolledBack once it is.
func (d *txRelease) seen() (rolledBack func()) {
	mark := d.mark.Load()
	return func() { d.mark.CompareAndSwap(mark, 0) }
}
