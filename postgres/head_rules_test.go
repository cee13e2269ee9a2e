package postgres

import (
	"context"
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

// The short hand-over, from an exclusive holder to the head of the queue: it does what the general
// way does, or nothing. Package oracle compares the two.

// Broken by leaving out any condition of HandToHead.
func TestTheShortHandOverDoesNothingInAnyOtherCase(t *testing.T) {
	for name, prepare := range map[string]func(s *script, v *protocol.Removal){
		"nobody waits": func(s *script, _ *protocol.Removal) {},
		"the head is dead": func(s *script, _ *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			s.enqueue(request("c", "c1"))
			s.exec("DELETE FROM dblock_heartbeats WHERE session_id = 'b'")
		},
		"the head is over its time": func(s *script, _ *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			s.enqueue(request("c", "c1"))
			s.exec("UPDATE dblock_heartbeats SET expires_at = dblock_now() WHERE session_id = 'b'")
		},
		"the head is a reader": func(s *script, _ *protocol.Removal) {
			s.enqueue(reader("b", "b1"))
			s.enqueue(request("c", "c1"))
		},
		"the head wants a fixed lease": func(s *script, _ *protocol.Removal) {
			r := request("b", "b1")
			r.Lease = time.Minute
			s.enqueue(r)
		},
		"the head wants a cool-down": func(s *script, _ *protocol.Removal) {
			r := request("b", "b1")
			r.MinHold = time.Minute
			s.enqueue(r)
		},
		"the name cools down": func(s *script, _ *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			s.exec("UPDATE dblock_locks SET rests_until = dblock_now() + 60000000")
		},
		"another token": func(s *script, v *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			v.Token--
		},
		"another session": func(s *script, v *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			v.Session = "c"
		},
		"another name": func(s *script, v *protocol.Removal) {
			s.enqueue(request("b", "b1"))
			v.Name = "m"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			for _, id := range []string{"a", "b", "c"} {
				s.session(id, time.Minute)
			}
			m := request("c", "c0")
			m.Name = "m"
			s.have(m)
			v := protocol.Release(s.have(request("a", "a1")), true, false)
			prepare(s, &v)
			read := func() (all string) {
				if err := s.pool.QueryRow(t.Context(), `SELECT (SELECT jsonb_agg(to_jsonb(l) ORDER BY name)::text FROM dblock_locks l) ||
					coalesce((SELECT jsonb_agg(to_jsonb(w) ORDER BY ticket)::text FROM dblock_waiters w), '')`).Scan(&all); err != nil {
					t.Fatal(err)
				}
				return all
			}
			was := read()
			if left, _, err := s.engine.release(t.Context(), v); err != nil || left.Done() || left.Next != nil {
				t.Errorf("handed %+v, %v", left, err)
			}
			if is := read(); is != was {
				t.Errorf("it was\n%s\nand is\n%s", was, is)
			}
		})
	}
}

// uncommitted is a database whose transactions fail behind their last statement.
type uncommitted struct{ database }

func (d uncommitted) transact(ctx context.Context, statements ...statement) error {
	return d.database.transact(ctx, append(statements, statement{sql: "SELECT 1 / 0"})...)
}

func (d uncommitted) begin(ctx context.Context, statements ...statement) (opened, error) {
	tx, err := d.database.begin(ctx, statements...)
	return uncommittedTx{tx}, err
}

type uncommittedTx struct{ opened }

func (t uncommittedTx) commit(ctx context.Context, statements ...statement) error {
	return t.opened.commit(ctx, append(statements, statement{sql: "SELECT 1 / 0"})...)
}

// Broken by returning what the rows said: a waiter of the same client would believe it.
func TestAGrantThatIsNotCommittedIsNotTold(t *testing.T) {
	for name, as := range map[string]func(op protocol.Op) protocol.Op{
		"the short hand-over": func(op protocol.Op) protocol.Op { return op },
		"the general one":     func(op protocol.Op) protocol.Op { return drivertest.General{Op: op} },
	} {
		t.Run(name, func(t *testing.T) {
			s := scriptOf(t, "a", "b")
			h := s.have(request("a", "a1"))
			s.enqueue(request("b", "b1"))
			committed := s.db
			s.db = uncommitted{committed}
			if results, err := s.Run(t.Context(), as(protocol.Release(h, true, false))); err == nil || results != nil {
				t.Errorf("handed on %+v, %v", results, err)
			}
			s.db = committed
			next, err := drivertest.Release(t.Context(), s, h, true)
			require.NoError(t, err)
			s.went(next, false, "b1")
		})
	}
}

// Rule 3. Broken by leaving LockRowWithin out of release: the short hand-over would believe in a
// hold that was just taken over.
func TestAReleaseThatMeetsAReentryHandsNothingOn(t *testing.T) {
	s := newScript(t)
	for _, id := range []string{"a", "b", "c"} {
		s.session(id, time.Minute)
	}
	h := s.have(request("a", "a1"))
	s.enqueue(request("b", "b1"))
	s.begin()
	s.does(func(n *protocol.Name) error {
		back := protocol.Request{Name: "n", Session: "c", Host: "h", Thread: "a1", Attempt: "c1"}
		_, err := protocol.Reenter{Request: back}.Apply(n)
		return err
	})
	s.behind(func() {
		if next, err := drivertest.Release(t.Context(), s, h, true); !errors.Is(err, driver.ErrNotHeld) ||
			len(next) > 0 {
			t.Errorf("handed on %+v, %v", next, err)
		}
	})
	if who := s.holder(); who.Attempt != "c1" {
		t.Errorf("the holder is %+v", who)
	}
	s.sound()
}

// Rules 3 and 9. Broken by a head that was read before the row was locked.
func TestAReleasePassesOverTheHeadThatJustLeft(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(request("a", "a1"))
	s.enqueue(request("b", "b1"))
	s.enqueue(request("b", "b2"))
	s.begin()
	s.leaves(protocol.Undo("b", "n", "b1"))
	s.do(join(request("b", "b3")))
	s.behind(func() {
		next, err := drivertest.Release(t.Context(), s, h, true)
		assert.NoError(t, err)
		s.went(next, true, "b2")
	})
	s.sound()
}

// Broken by leaving the lock timeout out of JoinQueue.
func TestAWaiterThatFindsTheRowLockedForLongComesBackLater(t *testing.T) {
	s := scriptOf(t, "a")
	s.have(request("a", "a1"))
	s.begin()
	s.do(query(postgresdb.LockRow, "n"))
	s.lockTimeout = briefly
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, _, err := drivertest.Join(within, s, request("a", "a2")); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("got %v", err)
	}
	var lasting string
	if err := s.placer.db.(pgxDB).pool.QueryRow(t.Context(),
		"SELECT current_setting('lock_timeout')").Scan(&lasting); err != nil || lasting != "0" {
		t.Errorf("the connection went back to the pool with a lock timeout of %s, %v", lasting, err)
	}
}

// Broken by a hand-over that leaves first_ticket where it is: each later one would pass all places
// again that have left. Broken also by one that sets it behind a place that somebody has, for then
// that place would never be served.
func TestAHandOverSaysWhereTheQueueBegins(t *testing.T) {
	s := scriptOf(t, "a", "b")
	h := s.have(request("a", "a1"))
	for _, attempt := range []string{"b1", "b2", "b3"} {
		s.enqueue(request("b", attempt))
	}
	for want := int64(2); want < 5; want++ {
		left, _, err := s.engine.release(t.Context(), protocol.Release(h, true, false))
		if err != nil || !left.Done() {
			t.Fatal(left, err)
		}
		s.sound()
		assert.Equal(t, s.number("SELECT first_ticket FROM dblock_locks"), want, "the queue begins at")
		h = protocol.Held{Name: "n", Session: "b", Token: left.Next[0].Grant.Token}
	}
}
