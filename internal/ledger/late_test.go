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
