package faulttest

import (
	"slices"
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

// A checker that finds nothing proves nothing, unless it finds what is there.
func TestTheCheckersFindSeededBugs(t *testing.T) {
	believed := []string{exclusion, tokens, order}
	whole, shared := []string{"a", "b", "c"}, []string{readName, permitsName}
	for _, seeded := range []struct {
		bug      string
		names    []string
		checkers []string
	}{
		{bugGrantsUnseen, whole, believed}, {bugReusesTokens, whole, []string{tokens, order}},
		{bugNeverDies, whole, believed},
		{bugDropsHandOffs, whole, []string{quiescence}}, {bugNeverGivesBack, whole, []string{quiescence}},
		{bugServesSecond, whole, []string{fairness, hearsay}}, {bugDiesTooSoon, whole, []string{losses}},
		{bugOneTooMany, shared, believed}, {bugCountsOne, shared[1:], believed},
		{bugWriterBeside, shared[:1], believed}, {bugReaderBeside, shared[:1], believed},
		{bugUpgradesBeside, shared[:1], believed}, {bugDowngradesToNothing, shared[:1], believed},
		{bugLetsSmallPass, shared[1:], []string{fairness, hearsay}}, {bugLetsReadersPass, shared[:1], []string{fairness}},
		{bugForgetsUnits, shared, []string{quiescence}}, {bugLeavesRoom, shared, []string{vacancy}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
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
				for checker, texts := range h.found {
					if len(texts) > 0 {
						t.Logf("%s: %d, first: %s", checker, len(texts), texts[0])
					}
				}
				missed = slices.DeleteFunc(missed, func(checker string) bool { return len(h.found[checker]) > 0 })
				if len(missed) == 0 {
					t.Logf("found in %d runs", try+1)
					return
				}
			}
			t.Errorf("nothing about %v", missed)
		})
	}
}
