//go:build unix

package fault

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
)

// anyDatabase is on PostgreSQL, which gets more done in the same time, or else SQLite.
func anyDatabase(t *testing.T) dbtest.Database {
	t.Helper()
	if _, err := dbtest.Find(dbtest.KindPostgres); err == nil {
		return dbtest.Postgres(t)
	}
	return dbtest.SQLite(t)
}

// A checker that finds nothing proves nothing, unless it finds what is there. Three checkers look
// for two who believe in the same lock: one of them must find each bug of that kind, and each of
// them some bug.
func TestTheCheckersFindSeededBugs(t *testing.T) {
	believed := []string{exclusion, tokens, order}
	whole, shared := []string{"a", "b", "c"}, []string{readName, permitsName}
	bugs := []struct {
		bug      string
		names    []string
		checkers []string // all of them find it; nil: one of those that look at what is believed
	}{
		{bugGrantsUnseen, whole, nil}, {bugReusesTokens, whole, []string{tokens, order}},
		{bugNeverDies, whole, nil},
		{bugDropsHandOffs, whole, []string{quiescence}}, {bugNeverGivesBack, whole, []string{quiescence}},
		{bugServesSecond, whole, []string{fairness, hearsay}}, {bugDiesTooSoon, whole, []string{losses}},
		{bugOneTooMany, shared, nil}, {bugCountsOne, shared[1:], nil},
		{bugWriterBeside, shared[:1], nil}, {bugReaderBeside, shared[:1], nil},
		{bugUpgradesBeside, shared[:1], nil}, {bugDowngradesToNothing, shared[:1], nil},
		{bugLetsSmallPass, shared[1:], []string{fairness, hearsay}}, {bugLetsReadersPass, shared[:1], []string{fairness}},
		{bugForgetsUnits, shared, []string{quiescence}}, {bugLeavesRoom, shared, []string{vacancy}},
	}
	var mu sync.Mutex // protects found and ran
	found, ran := map[string]bool{}, 0
	t.Cleanup(func() {
		for _, checker := range believed {
			if ran == len(bugs) && !found[checker] {
				t.Errorf("%s found nothing in any of them", checker)
			}
		}
	})
	for _, seeded := range bugs {
		t.Run(seeded.bug, func(t *testing.T) {
			t.Parallel()
			seed, missed := seed(t), slices.Clone(seeded.checkers)
			for try := range uint64(10) { // what a bug does depends on chance
				h := newHistory(newWorld(t, anyDatabase(t)), seed+try, seeded.bug, seeded.names...)
				h.silent, h.canary = ttl, nil // there are no faults, and no excuses
				length := time.Second
				if try > 0 || slices.Contains(slowBugs, seeded.bug) {
					length = time.Duration(min(1+try, 2)) * round
				}
				_ = h.run(length, false)
				h.check()
				for _, p := range h.all {
					p.kill()
				}
				mu.Lock()
				for checker, texts := range h.found {
					if len(texts) > 0 {
						t.Logf("%s: %d, first: %s", checker, len(texts), texts[0])
						found[checker] = true
					}
				}
				mu.Unlock()
				seen := func(checker string) bool { return len(h.found[checker]) > 0 }
				missed = slices.DeleteFunc(missed, seen)
				if len(missed) == 0 && (seeded.checkers != nil || slices.ContainsFunc(believed, seen)) {
					t.Logf("found in %d runs", try+1)
					mu.Lock()
					ran++
					mu.Unlock()
					return
				}
			}
			t.Errorf("nothing about %v", missed)
		})
	}
}
