package dblocktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestALockIsLostBeforeAnotherHasIt(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		second := f.Another(t)
		held, other := take(t, f.Client, "n"), take(t, f.Client, "m")
		waits := taking(t, second.Client, "n", func(lock) { hasLost(t, held) })
		f.AwaitQueue(t, "n", 1)
		f.Lose(t, held)
		hasLost(t, held)
		has(t, other)
		if next := got(t, waits); next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
		assert.ErrorIs(t, held.Unlock(t.Context()), dblock.ErrLost, "Unlock of a lost lock")
	})
}

func TestALostLockIsFreeWhereNobodyWaits(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		f.Lose(t, held)
		again, err := f.Client.TryLock(t.Context(), "n")
		if err != nil || again.Token() <= held.Token() {
			t.Fatal(again, err)
		}
		has(t, again)
	})
}

func TestAReaderIsLostAlone(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		first, second := take(t, f.Client, "n", dblock.Shared()), take(t, f.Another(t).Client, "n", dblock.Shared())
		f.Lose(t, second)
		hasLost(t, second)
		has(t, first)
		isTaken(t, f.Client, "n")
	})
}

// grantedTogether has n waiters of one client, which are granted a name together. It returns their
// locks in turn.
func grantedTogether(t *testing.T, f *dblocktest.Fake[*Tx], n int) <-chan lock {
	t.Helper()
	release := f.Hold(t, "n")
	locks := make(chan lock, n)
	for i := range n {
		taking(t, f.Client, "n", func(l lock) { locks <- l })
		f.AwaitQueue(t, "n", i+1)
	}
	release()
	return locks
}

// Waiters of one client are granted a name together, and pass it on in the client's memory.
func TestALockIsLostThatTheClientWouldPassOn(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		locks := grantedTogether(t, f, 3)
		for range 3 {
			l := got(t, locks)
			f.Lose(t, l)
			hasLost(t, l)
		}
	})
}

func TestALockIsLostByItsName(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	for _, process := range []*dblocktest.Fake[*Tx]{f, f.Another(t)} {
		err := process.Client.Do(t.Context(), "n", func(ctx context.Context, _ *dblock.Lock) error {
			f.LoseName(t, "n")
			<-ctx.Done()
			return nil
		})
		assert.ErrorIs(t, err, dblock.ErrLost)
	}
	fails(t, "not held", func(t testing.TB) { f.LoseName(t, "n") })
	for range 2 {
		take(t, f.Client, "n", dblock.Shared())
	}
	fails(t, "several share it", func(t testing.TB) { f.LoseName(t, "n") })
}

// Both may: a lock that is lost while it is unlocked.
func TestOfARaceBetweenLoseAndUnlockAtLeastOneWins(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	for range 100 {
		l := take(t, f.Client, "n")
		done := make(chan error, 1)
		go func() { done <- l.Unlock(t.Context()) }()
		b := &tb{TB: t}
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			f.Lose(b, l)
		}()
		err := <-done
		<-lost
		if err != nil && !errors.Is(err, dblock.ErrLost) || err != nil && len(b.said) > 0 {
			t.Fatalf("Unlock: %v, Lose: %v", err, b.said)
		}
	}
}

func TestLoseSaysWhyItCannot(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	l := take(t, f.Client, "n")
	assert.NoError(t, l.Unlock(t.Context()))
	fails(t, "not held", func(t testing.TB) { f.Lose(t, l) })
	l = take(t, f.Client, "n")
	f.Down()
	fails(t, "away", func(t testing.TB) { f.Lose(t, l) })
	f.Up()
	has(t, l)
}

// Broken by taking the name by the token alone: of a run any token stands for all of its members.
func TestAnUnlockedLockIsNotLostInPlaceOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		locks := grantedTogether(t, f, 2)
		first := got(t, locks)
		assert.NoError(t, first.Unlock(t.Context()))
		second := got(t, locks)
		fails(t, "not held", func(t testing.TB) { f.Lose(t, first) })
		has(t, second)
	})
}

func TestALostLockLeavesNoSession(t *testing.T) {
	f := dblocktest.New[*Tx](t)
	f.Lose(t, take(t, f.Client, "n"))
	for s, err := range inspect.New(f.Client).Sessions(t.Context(), inspect.SessionFilter{Dead: true}) {
		if err != nil || s.ID != f.Client.Stats().Session {
			t.Errorf("%+v, %v", s, err)
		}
	}
}
