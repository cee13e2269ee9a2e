package ledger

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a grant that is relied upon although its attempt is being undone.
func TestAGrantOfAnAttemptThatWasAbandonedIsNotHeld(t *testing.T) {
	now := clock.Func(func() time.Duration { return 0 })
	l := newLedger(t, now)
	c := granted(l, aliveSession(t, now), "a", protocol.Grant{Token: 7})
	l.Undo(c.Grant, func() {})
	if l.Hold(t.Context(), c) || l.HeldBy("a") != nil {
		t.Error("it is held")
	}
}

// A reader has its grant from a Downgrade whose own answer arrives while the reader is entered:
// between two looks at the writer's mode. Broken by a second look.
func TestAWriterWhoseDowngradeEndsWhileAReaderIsEnteredIsNotLost(t *testing.T) {
	now := clock.Func(func() time.Duration { return 0 })
	l, by := newLedger(t, now), aliveSession(t, now)
	w := held(t, l, by, "writer", protocol.Grant{Token: 1})
	w.Become(Mode{Last: 1, Knowledge: Yielding})
	r := granted(l, by, "reader", protocol.Grant{Token: 2})
	r.Become(Mode{Last: 2, Units: 1, Of: protocol.Readers})
	before, how, entered := l.enter(r, func() bool {
		w.Become(Mode{Last: 1, Units: 1, Of: protocol.Readers})
		return true
	})
	if before != nil || !entered || !l.Relies(w) || !l.Relies(r) {
		t.Errorf("the reader is held: %t, and the writer ends: %v", entered, how.Cause)
	}
}

func TestAGrantAfterTheSessionsDeadlineIsNotHeld(t *testing.T) {
	var now atomic.Int64
	read := clock.Func(func() time.Duration { return time.Duration(now.Load()) })
	by := aliveSession(t, read)
	l := newLedger(t, read)
	now.Store(int64(by.Deadline() - 1))
	if !l.Hold(t.Context(), granted(l, by, "a", protocol.Grant{Token: 1})) {
		t.Error("a grant before the deadline is not held")
	}
	now.Store(int64(by.Deadline()))
	require.NoError(t, by.Context().Err(), "the session has noticed by itself")
	if l.Hold(t.Context(), granted(l, by, "b", protocol.Grant{Token: 2})) {
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

// Broken by an Unlock that does not hear of a loss beside it.
func TestALockThatIsLostWhileItIsUnlockedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock.Func(func() time.Duration { return 0 })
		l := newLedger(t, now)
		c := held(t, l, aliveSession(t, now), "a", protocol.Grant{Token: 7})
		if !l.endBy(c, lose) {
			t.Fatal("it was not held")
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.Quit(c, contract.ErrUnlocked) }()
		synctest.Wait()
		l.End(c, c.lost(ErrDisowned))
		assert.ErrorIs(t, <-unlocked, contract.ErrLost, "unlocked")
	})
}
