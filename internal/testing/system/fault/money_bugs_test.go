//go:build unix

package fault

// Applications that are broken, each in one way.
const (
	bugNoLockTx    = "writes without LockTx"
	bugNoGuard     = "writes under a lease without Guard"
	bugNoAdvisory  = "writes without advisory LockTx"
	bugSessionOnly = "writes under an advisory session lock alone"
	bugNoBump      = "writes without Bump"
	// bugUnlocksEarly is what UnlockTx would be, if it did not wait for its transaction and roll
	// back with it.
	bugUnlocksEarly = "unlocks before the transaction ends"
)

// moneyBugs is which locks an application with a bug uses. They are for PostgreSQL: SQLite
// serializes transactions that read and write, locks or no locks.
var moneyBugs = map[string]string{
	bugNoLockTx: schemeLockTx, bugNoGuard: schemeGuard, bugUnlocksEarly: schemeGuard, bugNoAdvisory: schemeAdvisory,
	bugSessionOnly: schemeAdvisory, bugNoBump: schemeOptimistic,
}

// showBug lets a bank work whose tellers have a bug.
func (b *bank) showBug() {
	b.Helper()
	stop := b.watch()
	b.goesOn()
	if b.bug == bugNoGuard || b.bug == bugSessionOnly {
		// The session's lock needs more: a stopped process keeps it, and a process that is cut off
		// notices the loss.
		b.stopHalf(b.bug == bugSessionOnly)
		b.goesOn()
	}
	for _, c := range b.running {
		c.kill()
	}
	stop()
	b.check()
}
