package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
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
		s.leaves(protocol.Release(h, true, false))
		extend := func() {
			if left, err := s.extend(h, time.Hour); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("extended, with %v left: %v", left, err)
			}
		}
		done := s.blocked(extend)
		s.commit()
		<-done
		extend() // nor once the next holder is there to be seen
		assert.Equal(t, s.number("SELECT count(*) FROM dblock_holders WHERE expires_at < dblock_now() + 120000000"), 1,
			"the lease of the next holder was extended")
	}
}

// Broken by a takeover that looks at the lease before it has the row.
func TestATakeoverThatWaitedForAnExtensionLeavesTheLock(t *testing.T) {
	s := newScript(t)
	s.session("a", time.Minute)
	s.session("b", time.Minute)
	r := request("a", "a1")
	r.Lease = time.Minute
	h := s.have(r)
	s.exec("UPDATE dblock_locks SET expires_at = 1") // to others it is over
	s.begin()
	// as an extension that came in time
	s.do(statement{sql: "UPDATE dblock_locks SET expires_at = dblock_now() + 3600000000"})
	states, err := s.Read(t.Context(), "", []string{"n"}, 0)
	if err != nil || len(states) != 1 || states[0].Holder.Left >= 0 {
		t.Fatal(states, err)
	}
	holder := states[0].Holder
	done := s.blocked(func() {
		if next, left, err := drivertest.Remove(t.Context(), s, protocol.TakeOver("b", "n", holder)); left ||
			len(next) > 0 || err != nil {
			t.Errorf("taken over: %v, %v, %v", next, left, err)
		}
	})
	s.commit()
	<-done
	if is := s.holder(); is.Grant.Token != h.Token {
		t.Errorf("the holder is %+v", is)
	}
}
