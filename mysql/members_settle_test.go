package mysql_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/drivertest"
	"github.com/dblock-go/dblock/mysql"
)

// What changes the row would leave members behind that nobody serves.
func TestWhatARunHasToBeSettledBefore(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, nil)
		e := mysql.New(pool)
		a, b := actor{Backend: e.Backend, session: id()}, s.actor(t)
		must(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, TTL: ttl}))
		held, attempts := b.run(t, "n", a, 3)
		release := func() error {
			tx, err := pool.Begin()
			must(t, err)
			if err = e.Transactions.ReleaseTx(t.Context(), tx, held, aside(t, e.Backend)); err != nil {
				must(t, tx.Rollback())
				return err
			}
			return tx.Commit()
		}
		is(t, second(a.Raise(t.Context(), held, held.Token+5)), driver.ErrNotHeld)
		is(t, second(a.Downgrade(t.Context(), held)), driver.ErrNotHeld)
		is(t, release(), driver.ErrNotHeld)
		s.sound(t, "n")

		// Below, what it was settled on is told from the tokens that the run had reserved.
		reserved := held
		held.Token -= 2
		must(t, a.Settle(t.Context(), held, false))
		must(t, second(a.Leave(t.Context(), a.session, "n", attempts[1:])))
		for _, contended := range []bool{false, true} {
			is(t, second(drivertest.Release(t.Context(), a, reserved, contended)), driver.ErrNotHeld)
		}
		if _, released, err := a.Batch(t.Context(), nil, []driver.Held{reserved}); err != nil || released[0] {
			t.Fatal(released, err)
		}
		must(t, a.Record(t.Context(), []driver.Event{{Name: "n", Kind: "elected", Token: held.Token}}))
		s.exec(t, "UPDATE dblock_events SET at = 1")
		must(t, second(a.PurgeRecords(t.Context(), time.Hour, 10)))
		if events, err := a.Events(t.Context(), driver.EventFilter{Name: "n"}, 10); err != nil || len(events) != 1 {
			t.Errorf("what the holder has written was purged: %v, %v", events, err)
		}
		must(t, release())
		s.sound(t, "n")
	})
}

// What the row shows is known to the session that has settled its run, and perhaps not where a
// member took the place of one that left.
func TestAListenerIsToldOfAMemberThatMovedUp(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		held, attempts := b.run(t, "n", a, 3)
		s.exec(t, "UPDATE dblock_locks SET handed = 0, acquired_at = 1")
		must(t, second(drivertest.Undo(t.Context(), a, a.session, "n", attempts[0])))
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE handed = 1 AND attempt = ? AND acquired_at > 1", attempts[1]); n != 1 {
			t.Error("the row does not show the member that moved up, as a new grant")
		}
		s.exec(t, "UPDATE dblock_locks SET acquired_at = 1, asked = 'please'")
		held.Token-- // which is the row's own
		must(t, a.Settle(t.Context(), held, false))
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE handed = 0 AND attempt = ? AND acquired_at = 1 AND asked = 'please'", attempts[1]); n != 1 {
			t.Error("the row does not show the member that it has shown")
		}
	})
}
