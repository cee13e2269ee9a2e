package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// unlockable is a ledger with a hold, and what begins an UnlockTx of it.
func unlockable(t *testing.T) (l *Ledger, h *Hold, begin func() (answered func(error))) {
	still := clock.Func(func() time.Duration { return 0 })
	l = newLedger(t, still)
	h = newHold(t, l, aliveSession(t, still), "a", protocol.Grant{Token: 7})
	if !l.Rely(h, 0) {
		t.Fatal("it is not held")
	}
	return l, h, func() func(error) {
		answered, ok := l.ReleaseTx(h)
		if !ok {
			t.Fatal("it has ended")
		}
		return answered
	}
}

// shows reports whether a hold is relied upon after what Guard has found.
func shows(l *Ledger, h *Hold, shown func()) bool {
	shown()
	return l.Relies(h)
}

func TestWhatWasSeenBeforeUnlockTxProvesNothing(t *testing.T) {
	l, h, begin := unlockable(t)
	seen := func() func() { _, shown := l.ReleasedTx(h); return shown }
	early := seen()
	answered := begin()
	meanwhile := seen() // the row may not be locked yet
	if shows(l, h, meanwhile) {
		t.Error("a look beside the statement of UnlockTx shows that it was rolled back")
	}
	answered(nil)
	if shows(l, h, early) || shows(l, h, meanwhile) {
		t.Error("a look from before UnlockTx had the row shows that it was rolled back")
	}
	late := seen()
	again := begin()
	if shows(l, h, late) {
		t.Error("a look from before another UnlockTx shows that this one was rolled back")
	}
	again(nil)
	if !shows(l, h, seen()) {
		t.Error("the rollback was seen, and does not count")
	}
}

func TestAnUnlockTxThatFailedIsNone(t *testing.T) {
	l, h, begin := unlockable(t)
	failed := errors.New("no")
	if begin()(failed); !l.Relies(h) {
		t.Error("the only UnlockTx failed")
	}
	begin()(nil)
	if begin()(failed); l.Relies(h) {
		t.Error("the first UnlockTx may commit")
	}
	l, h, begin = unlockable(t)
	first, second := begin(), begin()
	first(failed)
	if second(nil); l.Relies(h) {
		t.Error("the second UnlockTx may commit")
	}
}

// Broken by a hold that stays among those that are found by name, or is in no list of what the
// database may have.
func TestWhatUnlockTxMayHaveReleasedIsFoundByNothing(t *testing.T) {
	l, h, begin := unlockable(t)
	found := func() bool {
		n, _ := l.Count(0)
		return l.Owned("n", h.Owner) != nil || l.Occupied("n") || l.HeldBy("a") != nil || n > 0
	}
	if !found() {
		t.Error("what is held is not found")
	}
	answered := begin()
	if found() || !l.Holding() || !l.Knows("a") || l.Of(h.In)["a"] != h {
		t.Error("what UnlockTx is about to release is found, or forgotten")
	}
	if answered(errors.New("no")); !found() {
		t.Error("what UnlockTx has not released is not found")
	}
	begin()(nil)
	if lost := l.revoke(errDisowned, h); len(lost) > 0 || l.State(h.Attempt) != ReleasedTx || l.Empty() {
		t.Error("a commit is not told from a loss")
	}
	if lost := l.revoke(errDisowned, h); len(lost) > 0 || found() || l.Of(h.In)["a"] != nil {
		t.Error("it is released twice, or still in a list")
	}
}

// Broken by a hold that UnlockTx has released and that stays so when its client is granted the name
// again: a Guard could bring it back beside that grant.
func TestAGrantAfterUnlockTxShowsItsCommit(t *testing.T) {
	l, h, begin := unlockable(t)
	begin()(nil)
	_, shown := l.ReleasedTx(h)
	next := newHold(t, l, h.In, "b", protocol.Grant{Token: 8})
	before, how, added := l.add(next, func() bool { return true })
	if !added || before != h || !how.Released() {
		t.Fatalf("%v, %v, %v: want the end of the one before, by a commit", before, how, added)
	}
	if shown(); l.Relies(h) || !l.Relies(next) {
		t.Error("both are relied upon")
	}
}

func TestTheContextOfALockThatUnlockTxHasReleasedAsksNoClock(t *testing.T) {
	l, h, begin := unlockable(t)
	begin()(nil)
	l.revoke(errDisowned, h)
	h.In.End(errDisowned)
	assert.NoError(t, h.Context().Err(), "Commit may still read its answer")
	if l.EndBy(h, Finish) {
		l.End(h, errDisowned)
	}
	assert.Error(t, h.Context().Err(), "after Unlock")
}
