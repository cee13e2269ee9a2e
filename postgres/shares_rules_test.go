package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The rules for what is shared, in the way of rules_test.go.

// Broken by having GiveUpShare subtract units that it did not delete.
func TestAShareIsSubtractedOnceWhereItsReleaseMeetsItsReclaim(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(units(request("a", "a1"), 2, 5))
	s.have(units(request("b", "b1"), 1, 5))
	s.begin()
	s.leaves(protocol.Release(h, true, false))
	done := s.blocked(func() {
		if next, err := drivertest.Release(t.Context(), s, h, false); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("released what was taken away meanwhile: %+v, %v", next, err)
		}
	})
	s.commit()
	<-done
	assert.Equal(t, s.number("SELECT shared_units FROM dblock_locks"), 1, "units are shared, of 1")
	s.sound()
}

// Broken by leaving the condition on shared_units out of TakeLock, or those on units and capacity
// out of TakeShare.
func TestAShareDecidesByTheRowThatItWaitedFor(t *testing.T) {
	for name, call := range map[string]func(s *script) error{
		"a writer": func(s *script) error {
			_, taken, err := drivertest.Take(s.Context(), s, request("b", "b1"))
			return notTaken(taken, err)
		},
		"a reader": func(s *script) error {
			_, taken, err := drivertest.Take(s.Context(), s, units(request("b", "b1"), 1, protocol.Readers))
			return notTaken(taken, err)
		},
		"too many of fewer units": func(s *script) error {
			_, taken, err := drivertest.Take(s.Context(), s, units(request("b", "b1"), 1, 2))
			return notTaken(taken, err)
		},
		"too many of more": func(s *script) error {
			_, taken, err := drivertest.Take(s.Context(), s, units(request("b", "b1"), 4, 9))
			return notTaken(taken, err)
		},
		"too many units": func(s *script) error {
			_, taken, err := drivertest.Take(s.Context(), s, units(request("b", "b1"), 4, 5))
			return notTaken(taken, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.session("a", time.Minute)
			s.session("b", time.Minute)
			h := s.have(request("a", "a1")) // so that there is a row
			require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), s, h, false)))
			s.begin()
			s.do(takeShare(units(request("a", "a2"), 2, 5)))
			done := s.blocked(func() { assert.NoError(t, call(s)) })
			s.commit()
			<-done
			s.sound()
		})
	}
}

func notTaken(taken bool, err error) error {
	if taken {
		return errors.New("taken")
	}
	return err
}

// Broken by leaving the capacity out of JoinQueue's WHERE.
func TestAQueueIsForReadersOrForPermitsWhoeverComesFirst(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	s.have(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(units(request("a", "a2"), 2, 5)))
	done := s.blocked(func() {
		if _, outcome, err := drivertest.Join(t.Context(), s, units(request("b", "b1"), 1,
			protocol.Readers)); !errors.Is(err, driver.ErrCapacity) {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	s.commit()
	<-done
	s.enqueue(request("b", "b2")) // who wants the whole name minds no capacity
	s.enqueue(units(request("b", "b3"), 5, 5))
	s.enqueue(units(request("b", "b4"), 1, 3)) // permits of another size are permits too
	s.sound()
}

// Broken by leaving LockRow out of handOver, or what GiveUpShare finds anew out of it.
func TestAReleaseSeesTheNumberThatAnotherStatesMeanwhile(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	small := s.have(units(request("a", "a1"), 1, 2))
	s.have(units(request("a", "a2"), 1, 8))
	s.enqueue(units(request("b", "b1"), 3, 8))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(statement{sql: "INSERT INTO dblock_shares (name, token, session_id, host, thread, attempt, units, " +
		"capacity, acquired_at) VALUES ('n', 9, 'b', '', '', 'b2', 1, 4, 0)"})
	s.do(statement{sql: "UPDATE dblock_locks SET shared_units = shared_units + 1"})
	done := s.blocked(func() {
		if next, _, err := drivertest.Remove(t.Context(), s, protocol.Release(small, true, false)); err != nil ||
			next != nil {
			t.Errorf("of 4 units 2 are used, and 3 were given: %+v, %v", next, err)
		}
	})
	s.commit()
	<-done
	s.sound()
}

// A batch sees the shares as they were when it began. Broken by leaving the mixed out of BatchRows.
func TestABatchLeavesASmallestNumberToTheSingleWay(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
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
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(units(request("a", "a1"), 2, 2))
	s.begin()
	s.leaves(protocol.Release(h, true, false))
	done := s.blocked(func() {
		if _, outcome, err := drivertest.Join(t.Context(), s, units(request("b", "b1"), 1,
			2)); outcome != protocol.Done || err != nil {
			t.Errorf("outcome %v, %v", outcome, err)
		}
	})
	s.commit()
	<-done
	s.sound()
}

// Broken by handing nothing on where only a place in the queue was given up, or by reading the
// queue in the statement that waits for the row: the reader who is just queueing up would be
// overlooked.
func TestAWritersCancelLetsTheReadersBehindItIn(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	s.have(reader("a", "a1"))
	s.enqueue(request("b", "writer"))
	s.enqueue(reader("a", "r1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.do(join(reader("b", "r2")))
	done := s.blocked(func() {
		next, err := drivertest.Undo(t.Context(), s, "b", "n", "writer")
		assert.NoError(t, err)
		s.went(next, false, "r1", "r2")
	})
	s.commit()
	<-done
	s.sound()
}

// Broken by leaving LockRow out of Upgrade: it would then decide by a snapshot from before the
// other reader.
func TestAnUpgradeSeesTheReaderThatItWaitedFor(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	h := s.have(reader("a", "a1"))
	s.begin()
	s.do(takeShare(reader("b", "b1")))
	done := s.blocked(func() {
		if g, whole, err := s.upgrade(h, "a1"); whole || err != nil {
			t.Errorf("upgraded beside another reader: %+v, %v", g, err)
		}
	})
	s.commit()
	<-done
	s.sound()
}

// Broken by leaving out that the share must be the only one: both would have the name.
func TestOfTwoWhoUpgradeAtOnceNeitherWaitsForTheOther(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	a, b := s.have(reader("a", "a1")), s.have(reader("b", "b1"))
	upgrade := func(h protocol.Held, attempt string) func() {
		return func() {
			if _, whole, err := s.upgrade(h, attempt); whole || err != nil {
				t.Errorf("upgrade of %s: %v, %v", attempt, whole, err)
			}
		}
	}
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	one := s.blocked(upgrade(a, "a1"))
	two := s.blocked(upgrade(b, "b1"), 2)
	s.commit()
	<-one
	<-two
	require.NoError(t, require.ErrOf(drivertest.Release(t.Context(), s, b, false)))
	s.enqueue(request("b", "b2"))
	g, whole, err := s.upgrade(a, "a1")
	if err != nil || !whole || g.Token <= b.Token || !g.Contended {
		t.Fatalf("upgrade of the only reader: %+v, %v, %v", g, whole, err)
	}
	if again, whole, err := s.upgrade(a, "a1"); err != nil || !whole || again != g {
		t.Errorf("the same again: %+v, %v, %v", again, whole, err)
	}
	s.sound()
}

// Broken by leaving LockRow out of handOver, or the capacity out of Downgrade.
func TestADowngradeSeesTheReaderThatItWaitedFor(t *testing.T) {
	for capacity, want := range map[int]error{protocol.Readers: nil, 5: driver.ErrCapacity} {
		s := newScript(t)
		s.session("a", time.Minute)
		s.session("b", time.Minute)
		h := s.have(request("a", "a1"))
		s.begin()
		s.do(query(postgresdb.LockRow, "n"))
		s.do(join(units(request("b", "b1"), 1, capacity)))
		done := s.blocked(func() {
			next, err := s.downgrade(h)
			if !errors.Is(err, want) || (want == nil) != (first(next).Attempt == "b1") {
				t.Errorf("capacity %d: %+v, %v", capacity, next, err)
			}
		})
		s.commit()
		<-done
		s.sound()
	}
}
