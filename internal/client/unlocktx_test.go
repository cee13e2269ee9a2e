package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// unlockable is a registry with a hold, and what begins an UnlockTx of it.
func unlockable(t *testing.T) (r *registry, h *hold, begin func() (answered func(error))) {
	still := clock.Func(func() time.Duration { return 0 })
	r = newRegistry(testlog.New(io.Discard, t.Error))
	h = &hold{attempt: r.request("n", "a"), in: aliveSession(t, still)}
	h.mode.Store(&mode{token: 7})
	h.ctx, h.cancel = context.WithCancelCause(t.Context())
	if _, _, added := r.add(h, func() bool { return true }); !added {
		t.Fatal("it is not held")
	}
	return r, h, func() func(error) {
		answered, ok := r.releaseTx(h)
		if !ok {
			t.Fatal("it has ended")
		}
		return answered
	}
}

// shows reports whether a hold is relied upon after what Guard has found.
func shows(r *registry, h *hold, shown func()) bool {
	shown()
	return r.relies(h)
}

func TestWhatWasSeenBeforeUnlockTxProvesNothing(t *testing.T) {
	r, h, begin := unlockable(t)
	seen := func() func() { _, shown := r.releasedTx(h); return shown }
	early := seen()
	answered := begin()
	meanwhile := seen() // the row may not be locked yet
	if shows(r, h, meanwhile) {
		t.Error("a look beside the statement of UnlockTx shows that it was rolled back")
	}
	answered(nil)
	if shows(r, h, early) || shows(r, h, meanwhile) {
		t.Error("a look from before UnlockTx had the row shows that it was rolled back")
	}
	late := seen()
	again := begin()
	if shows(r, h, late) {
		t.Error("a look from before another UnlockTx shows that this one was rolled back")
	}
	again(nil)
	if !shows(r, h, seen()) {
		t.Error("the rollback was seen, and does not count")
	}
}

func TestAnUnlockTxThatFailedIsNone(t *testing.T) {
	r, h, begin := unlockable(t)
	failed := errors.New("no")
	if begin()(failed); !r.relies(h) {
		t.Error("the only UnlockTx failed")
	}
	begin()(nil)
	if begin()(failed); r.relies(h) {
		t.Error("the first UnlockTx may commit")
	}
	r, h, begin = unlockable(t)
	first, second := begin(), begin()
	first(failed)
	if second(nil); r.relies(h) {
		t.Error("the second UnlockTx may commit")
	}
}

// Broken by a hold that stays among those that are found by name, or is in no list of what the
// database may have.
func TestWhatUnlockTxMayHaveReleasedIsFoundByNothing(t *testing.T) {
	r, h, begin := unlockable(t)
	found := func() bool {
		n, _ := r.count(0)
		return r.owned("n", h.owner) != nil || r.occupied("n") || r.held("a") != nil || n > 0
	}
	if !found() {
		t.Error("what is held is not found")
	}
	answered := begin()
	if found() || !r.holding() || !r.knows("a") || r.heldBy(h.in)["a"] != h {
		t.Error("what UnlockTx is about to release is found, or forgotten")
	}
	if answered(errors.New("no")); !found() {
		t.Error("what UnlockTx has not released is not found")
	}
	begin()(nil)
	if how, taken := r.forfeit(h, errDisowned); !taken || how.event != commit || r.empty() {
		t.Error("a commit is not told from a loss")
	}
	if _, taken := r.forfeit(h, errDisowned); taken || found() || r.heldBy(h.in)["a"] != nil {
		t.Error("it is released twice, or still in a list")
	}
}

// Broken by a hold that UnlockTx has released and that stays so when its client is granted the name
// again: a Guard could bring it back beside that grant.
func TestAGrantAfterUnlockTxShowsItsCommit(t *testing.T) {
	r, h, begin := unlockable(t)
	begin()(nil)
	_, shown := r.releasedTx(h)
	next := &hold{attempt: r.request("n", "b"), in: h.in}
	next.mode.Store(&mode{token: 8})
	before, how, added := r.add(next, func() bool { return true })
	if !added || before != h || how.event != commit {
		t.Fatalf("%v, %v, %v: want the end of the one before, by a commit", before, how, added)
	}
	if shown(); r.relies(h) || !r.relies(next) {
		t.Error("both are relied upon")
	}
}

// unguarded is a transaction that fails the test where it is guarded.
type unguarded struct {
	Tx
	t *testing.T
}

func (u unguarded) MakeGuard(context.Context, driver.Held, driver.OnSideConn) error {
	u.t.Error("a guard is made")
	return nil
}

func (u unguarded) Guard(context.Context, driver.Held, driver.OnSideConn) error { return nil }
func (u unguarded) Exclusive() bool                                             { return true }

// Broken by a Guard that begins after Unlock has asked whether there was any: the write of its
// transaction could land after the next grant.
func TestAGuardDoesNotBeginOnceTheLockIsBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		l := acquire(t, t.Context(), c, "n")
		if !c.registry.take(l.hold, unlock) { // Unlock goes on after this moment
			t.Fatal("it is not held")
		}
		guarded := make(chan error, 1)
		go func() {
			_, err := c.Guard(t.Context(), unguarded{t: t}, l)
			guarded <- err
		}()
		synctest.Wait()
		c.end(l.hold, errUnlocked)
		if err := <-guarded; !errors.Is(err, driver.ErrNotHeld) || errors.Is(err, ErrLost) {
			t.Errorf("guarded: %v", err)
		}
		if !l.hold.guarded.Load() {
			t.Error("a release that comes later does not see it")
		}
		c.registry.transition(l.hold.attempt, finish)
	})
}

// Broken by the order in which they are given: two transactions that release shares of the same
// names in different orders wait for each other's rows.
func TestATransactionTakesLocksInTheOrderOfTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		b, a := acquire(t, t.Context(), c, "b"), acquire(t, t.Context(), c, "a")
		ordered, _, err := c.ofTx([]*Lock{b, a, b})
		if err != nil || len(ordered) != 2 || ordered[0] != a || ordered[1] != b {
			t.Errorf("%v, %v", ordered, err)
		}
		for _, l := range []*Lock{a, b} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
