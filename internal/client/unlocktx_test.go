package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// unguarded is a transaction that fails the test where it is guarded.
type unguarded struct {
	driver.Tx
	t *testing.T
}

func (u unguarded) MakeGuard(context.Context, protocol.Held, driver.OnSideConn) error {
	u.t.Error("a guard is made")
	return nil
}

func (u unguarded) Guard(context.Context, protocol.Held, driver.OnSideConn) error { return nil }
func (u unguarded) Exclusive() bool                                               { return true }

// Broken by a Guard that begins after Unlock has asked whether there was any: the write of its
// transaction could land after the next grant.
func TestAGuardDoesNotBeginOnceTheLockIsBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		l := acquire(t, t.Context(), c, "n")
		if !c.ledger.Release(l.claim) { // Unlock goes on after this moment
			t.Fatal("it is not held")
		}
		guarded := make(chan error, 1)
		go func() {
			_, err := c.Guard(t.Context(), unguarded{t: t}, l)
			guarded <- err
		}()
		synctest.Wait()
		c.ledger.End(l.claim, errUnlocked)
		if err := <-guarded; !errors.Is(err, driver.ErrNotHeld) || errors.Is(err, ErrLost) {
			t.Errorf("guarded: %v", err)
		}
		if !l.claim.Grant.Guarded.Load() {
			t.Error("a release that comes later does not see it")
		}
		c.ledger.Finish(l.claim.Grant, false)
	})
}

// Broken by the order in which they are given: two transactions that release shares of the same
// names in different orders wait for each other's rows.
func TestATransactionTakesLocksInTheOrderOfTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		b, a := acquire(t, t.Context(), c, "b"), acquire(t, t.Context(), c, "a")
		ordered, _, err := c.ofTx([]*Lock{b, a, b})
		if err != nil || len(ordered) != 2 || ordered[0] != a.claim || ordered[1] != b.claim {
			t.Errorf("%v, %v", ordered, err)
		}
		for _, l := range []*Lock{a, b} {
			assert.NoError(t, l.Unlock(t.Context()))
		}
	})
}
