//go:build unix

package fault

import (
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// schemesOf are the ways to move money that an engine has.
func schemesOf(kind string) []string {
	schemes := []string{schemeLockTx, schemeGuard, schemeOptimistic}
	switch kind {
	case dbtest.KindPostgres:
		return append(schemes, schemeAdvisory, schemeSession)
	case dbtest.KindMySQL, dbtest.KindMariaDB:
		return append(schemes, schemeSession)
	}
	return schemes
}

// moneyRound has one worker of each scheme in each process, so that all of them meet the same
// faults in the same time, or two of one scheme.
func moneyRound(w *world) {
	if w.bug != "" {
		newBank(w, map[string]int{moneyBugs[w.bug]: 4}).showBug()
		return
	}
	all := schemesOf(w.engine)
	schemes := map[string]int{}
	if i := w.random.IntN(2 * len(all)); i < len(all) {
		schemes[all[i]] = 2
	} else {
		for _, scheme := range all {
			schemes[scheme] = 1
		}
	}
	newBank(w, schemes).run()
}

// run lets a bank work under faults, and reads the books afterwards.
func (b *bank) run() {
	b.Helper()
	stop := b.watch()
	b.goesOn()
	for end := session.Boottime() + b.length; ; {
		b.torment()
		if session.Boottime() >= end {
			break
		}
	}
	b.close()
	stop()
	b.nothingIsStuck()
	b.check()
}
