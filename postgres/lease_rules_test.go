package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
)

// Broken by leaving the token out of ExtendLock: the next holder of the same session would have
// its lease extended.
func TestAnExtensionThatWaitedForATakeoverFindsTheLockGone(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := newScript(t)
		s.session("a", time.Minute)
		r := request("a", "a1")
		r.Lease = time.Minute
		if shared {
			r.Units, r.Of = 1, 1
		}
		h := s.have(r)
		next := r
		next.Attempt, next.Lease = "a2", time.Minute
		s.enqueue(next)
		s.begin()
		s.do(query(postgresdb.LockRow, "n"))
		if shared {
			s.do(query(postgresdb.GiveUpShare, postgresdb.GiveUpShareParams{Name: "n", Session: "a", Token: h.Token}))
			s.do(query(postgresdb.HandOver, postgresdb.HandOverParams{Name: "n"}))
		} else {
			s.do(query(postgresdb.HandOver, postgresdb.HandOverParams{Name: "n", Session: "a", Token: h.Token}))
		}
		extend := func() {
			if left, err := s.Extend(t.Context(), h, time.Hour); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("extended, with %v left: %v", left, err)
			}
		}
		done := s.blocked(extend)
		s.commit()
		<-done
		extend() // nor once the next holder is there to be seen
		if n := s.number("SELECT count(*) FROM dblock_holders WHERE expires_at < dblock_now() + 120000000"); n != 1 {
			t.Error("the lease of the next holder was extended")
		}
	}
}

// Broken by a takeover that looks at the lease before it has the row.
func TestATakeoverThatWaitedForAnExtensionLeavesTheLock(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	r := request("a", "a1")
	r.Lease = 300 * time.Millisecond
	h := s.have(r)
	s.begin()
	s.do(query(postgresdb.ExtendLock, postgresdb.ExtendLockParams{
		Name: "n", Session: "a", Token: h.Token, Lease: time.Hour.Microseconds(), LockTimeout: "10s",
	}))
	var holder driver.Holder
	for deadline := time.Now().Add(10 * time.Second); holder.Left >= 0; time.Sleep(10 * time.Millisecond) {
		states, err := s.Look(t.Context(), "", []string{"n"})
		if err != nil || len(states) != 1 || time.Now().After(deadline) {
			t.Fatal(states, err)
		}
		holder = states[0].Holder
	}
	done := s.blocked(func() {
		if next, left, err := s.Vacate(t.Context(), driver.TakeOver("b", "n", holder)); left || len(next) > 0 || err != nil {
			t.Errorf("taken over: %v, %v, %v", next, left, err)
		}
	})
	s.commit()
	<-done
	if is := s.holder(); is.Grant.Token != h.Token {
		t.Errorf("the holder is %+v", is)
	}
}
