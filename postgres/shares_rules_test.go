package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The rules for what is shared, in the way of rules_test.go.

// Broken by reading the shares that a release names before the row is locked.
func TestAShareIsSubtractedOnceWhereItsReleaseMeetsItsReclaim(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(units(request("a", "a1"), 2, 5))
	s.have(units(request("b", "b1"), 1, 5))
	s.begin()
	s.leaves(protocol.Release(h, true, false))
	s.behind(func() {
		if next, err := drivertest.Release(t.Context(), s, h, false); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("released what was taken away meanwhile: %+v, %v", next, err)
		}
	})
	assert.Equal(t, s.number("SELECT shared_units FROM dblock_locks"), 1, "units are shared, of 1")
	s.sound()
}

// Broken by leaving the condition on shared_units out of TakeLock, or those on units and capacity
// out of TakeShare.
func TestAShareDecidesByTheRowThatItWaitedFor(t *testing.T) {
	b1 := request("b", "b1")
	for name, r := range map[string]protocol.Request{
		"a writer": b1, "a reader": reader("b", "b1"), "too many of fewer units": units(b1, 1, 2),
		"too many of more": units(b1, 4, 9), "too many units": units(b1, 4, 5),
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptOf(t, "a", "b")
			s.release(s.have(request("a", "a1"))) // so that there is a row
			s.begin()
			s.do(takeShare(units(request("a", "a2"), 2, 5)))
			s.behind(func() {
				if _, taken, err := drivertest.Take(t.Context(), s, r); taken || err != nil {
					t.Errorf("taken: %v, %v", taken, err)
				}
			})
			s.sound()
		})
	}
}

// Broken by leaving the capacity out of JoinQueue's WHERE.
func TestAQueueIsForReadersOrForPermitsWhoeverComesFirst(t *testing.T) {
	s := scriptOf(t, "a", "b")
	s.have(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(units(request("a", "a2"), 2, 5)))
	s.behind(func() {
		if _, outcome, err := drivertest.Join(t.Context(), s, units(request("b", "b1"), 1,
			protocol.Readers)); !errors.Is(err, driver.ErrCapacity) {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	s.enqueue(request("b", "b2")) // who wants the whole name minds no capacity
	s.enqueue(units(request("b", "b3"), 5, 5))
	s.enqueue(units(request("b", "b4"), 1, 3)) // permits of another size are permits too
	s.sound()
}

// A batch sees the shares as they were when it began. Broken by leaving the mixed out of BatchRows.
func TestABatchLeavesASmallestNumberToTheSingleWay(t *testing.T) {
	s := scriptOf(t, "a")
	small := s.have(units(request("a", "a1"), 1, 2))
	s.have(units(request("a", "a2"), 1, 8))
	_, released, err := drivertest.Batch(t.Context(), s, nil, []protocol.Held{small})
	if err != nil || released[0] {
		t.Fatalf("released in a batch: %v, %v", released, err)
	}
	s.release(small)
	s.have(units(request("a", "a3"), 7, 8))
	s.sound()
}

// Broken by having JoinQueue queue whoever shares: nobody would hand on to who fits.
func TestNobodyQueuesForUnitsThatWereGivenUpMeanwhile(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(units(request("a", "a1"), 2, 2))
	s.begin()
	s.leaves(protocol.Release(h, true, false))
	s.behind(func() {
		if _, outcome, err := drivertest.Join(t.Context(), s, units(request("b", "b1"), 1,
			2)); outcome != protocol.Done || err != nil {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	s.sound()
}

// Broken by handing nothing on where only a place in the queue was given up, or by reading the
// queue in the statement that waits for the row: the reader who is just queueing up would be
// overlooked.
func TestAWritersCancelLetsTheReadersBehindItIn(t *testing.T) {
	s := scriptOf(t, "a", "b")
	s.have(reader("a", "a1"))
	s.enqueue(request("b", "writer"))
	s.enqueue(reader("a", "r1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(reader("b", "r2")))
	s.behind(func() {
		next, err := drivertest.Undo(t.Context(), s, "b", "n", "writer")
		assert.NoError(t, err)
		s.went(next, false, "r1", "r2")
	})
	s.sound()
}

// Broken by leaving LockRow out of Upgrade: it would then decide by a snapshot from before the
// other reader.
func TestAnUpgradeSeesTheReaderThatItWaitedFor(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(reader("a", "a1"))
	s.begin()
	s.do(takeShare(reader("b", "b1")))
	s.behind(func() {
		if g, whole, err := s.upgrade(h, "a1"); whole || err != nil {
			t.Errorf("upgraded beside another reader: %+v, %v", g, err)
		}
	})
	s.sound()
}

// Broken by a savepoint that travels with statements that pgx has yet to prepare: the first error
// would end the transaction.
func TestAnUnlockTxOfAShareThatFailsLeavesTheTransactionOpen(t *testing.T) {
	s := newScriptIn(t, dbtest.New(t, dbtest.KindPostgres))
	s.session("a", time.Minute)
	other := request("a", "a1")
	other.Name = "whole"
	whole, share := s.have(other), s.have(reader("a", "a2"))
	s.begin()
	require.NoError(t, s.inside("UnlockTx", s.tx, whole))
	s.commit()
	s.exec("ALTER TABLE dblock_shares RENAME TO gone")
	s.begin() // on the same connection
	if err := s.inside("UnlockTx", s.tx, share); err == nil {
		t.Error("a share was released without its table")
	}
	s.do(statement{sql: "SELECT 1"})
}
