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
func unlockable(t *testing.T) (l *Ledger, c *Claim, begin func() (answered func(error))) {
	still := clock.Func(func() time.Duration { return 0 })
	l = newLedger(t, still)
	c = held(t, l, aliveSession(t, still), "a", protocol.Grant{Token: 7})
	return l, c, func() func(error) {
		answered, ok := l.Promise(c)
		if !ok {
			t.Fatal("it has ended")
		}
		return answered
	}
}

// shows reports whether a claim is held after what Guard has found.
func shows(l *Ledger, c *Claim, shown func()) bool {
	shown()
	return l.Relies(c)
}

func TestWhatWasSeenBeforeUnlockTxProvesNothing(t *testing.T) {
	l, c, begin := unlockable(t)
	seen := func() func() { _, shown := l.Promised(c); return shown }
	early := seen()
	answered := begin()
	meanwhile := seen() // the row may not be locked yet
	if shows(l, c, meanwhile) {
		t.Error("a look beside the statement of UnlockTx shows that it was rolled back")
	}
	answered(nil)
	if shows(l, c, early) || shows(l, c, meanwhile) {
		t.Error("a look from before UnlockTx had the row shows that it was rolled back")
	}
	late := seen()
	again := begin()
	if shows(l, c, late) {
		t.Error("a look from before another UnlockTx shows that this one was rolled back")
	}
	again(nil)
	if !shows(l, c, seen()) {
		t.Error("the rollback was seen, and does not count")
	}
}

func TestAnUnlockTxThatFailedIsNone(t *testing.T) {
	l, c, begin := unlockable(t)
	failed := errors.New("no")
	if begin()(failed); !l.Relies(c) {
		t.Error("the only UnlockTx failed")
	}
	begin()(nil)
	if begin()(failed); l.Relies(c) {
		t.Error("the first UnlockTx may commit")
	}
	l, c, begin = unlockable(t)
	first, second := begin(), begin()
	first(failed)
	if second(nil); l.Relies(c) {
		t.Error("the second UnlockTx may commit")
	}
}

// Broken by a claim that stays among those that are found by name, or is in no list of what the
// database may have.
func TestWhatUnlockTxMayHaveReleasedIsFoundByNothing(t *testing.T) {
	l, c, begin := unlockable(t)
	found := func() bool {
		n, _ := l.Count(0)
		return l.Owned("n", c.Owner) != nil || l.Occupied("n") || l.HeldBy("a") != nil || n > 0
	}
	if !found() {
		t.Error("what is held is not found")
	}
	answered := begin()
	if found() || !l.Holding() || !l.Knows("a") || l.Of(c.Grant.In)["a"] != c {
		t.Error("what UnlockTx is about to release is found, or forgotten")
	}
	if answered(errors.New("no")); !found() {
		t.Error("what UnlockTx has not released is not found")
	}
	begin()(nil)
	if lost := l.revoke(ErrDisowned, c); len(lost) > 0 || l.StateOf(c) != Released {
		t.Error("a commit is not told from a loss")
	}
	if lost := l.revoke(ErrDisowned, c); len(lost) > 0 || found() || l.Of(c.Grant.In)["a"] != nil {
		t.Error("it is released twice, or still in a list")
	}
}

// Broken by a claim that UnlockTx has released and that stays so when its client is granted the
// name again: a Guard could bring it back beside that grant.
func TestAGrantAfterUnlockTxShowsItsCommit(t *testing.T) {
	l, c, begin := unlockable(t)
	begin()(nil)
	_, shown := l.Promised(c)
	next := granted(l, c.Grant.In, "b", protocol.Grant{Token: 8})
	before, how, entered := l.enter(next, func() bool { return true })
	if !entered || before != c || !how.Released() {
		t.Fatalf("%v, %v, %v: want the end of the one before, by a commit", before, how, entered)
	}
	if shown(); l.Relies(c) || !l.Relies(next) {
		t.Error("both are relied upon")
	}
}

func TestTheContextOfALockThatUnlockTxHasReleasedAsksNoClock(t *testing.T) {
	l, c, begin := unlockable(t)
	begin()(nil)
	l.revoke(ErrDisowned, c)
	c.Grant.In.End(ErrDisowned)
	assert.NoError(t, c.Context().Err(), "Commit may still read its answer")
	if !l.Drop(c, ErrDisowned) {
		t.Error("Unlock does not find it")
	}
	assert.Error(t, c.Context().Err(), "after Unlock")
}
