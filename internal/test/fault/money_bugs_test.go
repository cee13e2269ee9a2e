//go:build unix

package fault

import (
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
)

// Applications that are broken, each in one way.
const (
	bugNoLockTx    = "writes without LockTx"
	bugNoGuard     = "writes under a lease without Guard"
	bugNoAdvisory  = "writes without advisory LockTx"
	bugSessionOnly = "writes under an advisory session lock alone"
	bugNoBump      = "writes without Bump"
)

// theBooksShowSeededBugs is on PostgreSQL: SQLite serializes transactions that read and write,
// locks or no locks.
func theBooksShowSeededBugs(t *testing.T) {
	t.Parallel()
	for bug, scheme := range map[string]string{
		bugNoLockTx: schemeLockTx, bugNoGuard: schemeGuard, bugNoAdvisory: schemeAdvisory, bugSessionOnly: schemeAdvisory,
		bugNoBump: schemeOptimistic,
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			seed := seed(t)
			for try := range uint64(10) { // what a bug does depends on chance
				b := newBank(newWorld(t, dbtest.Postgres(t)), seed+try, map[string]int{scheme: 4}, bug)
				stop := b.watch()
				b.goesOn()
				if bug == bugNoGuard || bug == bugSessionOnly {
					// The session's lock needs more: a stopped process keeps it, and a process that
					// is cut off notices the loss.
					b.stopHalf(bug == bugSessionOnly)
					b.goesOn()
				}
				for _, c := range b.running {
					c.kill()
				}
				stop()
				b.check()
				for checker, texts := range b.found {
					t.Logf("%s: %d, first: %s", checker, len(texts), texts[0])
				}
				if len(b.found[totals])+len(b.found[updates]) > 0 {
					return
				}
			}
			t.Errorf("nothing about %s or %s", totals, updates)
		})
	}
}
