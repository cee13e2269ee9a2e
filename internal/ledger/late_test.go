package ledger

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a grant that is relied upon although its attempt is being undone.
func TestAGrantOfAnAttemptThatWasAbandonedIsNotHeld(t *testing.T) {
	now := clock.Func(func() time.Duration { return 0 })
	l := newLedger(t, now)
	h := newHold(t, l, aliveSession(t, now), "a", protocol.Grant{Token: 7})
	l.Move(h.Attempt, Abandon)
	if l.Rely(h, 0) || l.HeldBy("a") != nil {
		t.Error("it is held")
	}
}

// A reader has its grant from a Downgrade whose own answer arrives while the reader is entered:
// between two looks at the writer's mode. Broken by a second look.
func TestAWriterWhoseDowngradeEndsWhileAReaderIsEnteredIsNotLost(t *testing.T) {
	now := clock.Func(func() time.Duration { return 0 })
	l, by := newLedger(t, now), aliveSession(t, now)
	w := newHold(t, l, by, "writer", protocol.Grant{Token: 1})
	if !l.Rely(w, 0) {
		t.Fatal("the writer is not held")
	}
	w.Mode.Store(&Mode{Token: 1, Last: 1, Doubt: Yielding})
	r := newHold(t, l, by, "reader", protocol.Grant{Token: 2})
	r.Mode.Store(&Mode{Token: 2, Last: 2, Units: 1, Of: protocol.Readers})
	before, how, added := l.add(r, func() bool {
		w.Mode.Store(&Mode{Token: 1, Last: 1, Units: 1, Of: protocol.Readers})
		return true
	})
	if before != nil || !added || !l.Relies(w) || !l.Relies(r) {
		t.Errorf("the reader is added: %t, and the writer ends: %v", added, how.Cause)
	}
}

func TestAGrantAfterTheSessionsDeadlineIsNotHeld(t *testing.T) {
	var now atomic.Int64
	read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
	by := aliveSession(t, read)
	l := newLedger(t, read)
	now.Store(int64(by.Deadline() - 1))
	if !l.Rely(newHold(t, l, by, "a", protocol.Grant{Token: 1}), read()) {
		t.Error("a grant before the deadline is not held")
	}
	now.Store(int64(by.Deadline()))
	require.NoError(t, by.Context().Err(), "the session has noticed by itself")
	if l.Rely(newHold(t, l, by, "b", protocol.Grant{Token: 2}), read()) {
		t.Error("a grant after the deadline is held")
	}
}

func TestAFixedLeaseIsCountedFromTheQuestionWithAMargin(t *testing.T) {
	// Asked at 100 s, answered at 101 s. The server may have granted it at 100 s, by a clock that
	// is 1 % faster.
	end := LeaseEnd(10*time.Second, 100*time.Second, 101*time.Second)
	if want := 110*time.Second - 100*time.Millisecond - 2*time.Second; end != want {
		t.Errorf("it ends at %v, want %v", end, want)
	}
}
