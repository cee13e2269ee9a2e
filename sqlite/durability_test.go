package sqlite

import (
	"testing"
	"time"
)

// The clock goes in steps of a millisecond, within which a name can be granted more than once.
func TestATokenOfTheClocksNextStepMustLast(t *testing.T) {
	const now = 1_700_000_000_000_000
	for token, want := range map[int64]bool{now: false, now + 1: false, now + 999: false, now + 1000: true} {
		if mustLast(token, now, 0) != want {
			t.Errorf("token %d at %d: %v", token, int64(now), !want)
		}
	}
	if !mustLast(now, now, time.Second) {
		t.Error("a rest can be lost")
	}
}
