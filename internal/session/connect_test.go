package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// outageOf opens a session, changes the server with set, cuts its heartbeat connection, and runs
// for five TTLs.
func outageOf(t *testing.T, s *server, set func()) *Session {
	t.Helper()
	session, _ := start(t, s)
	time.Sleep(ttl + ttl/50)
	s.set(func() { set(); s.down = true })
	time.Sleep(ttl / beatsPerTTL)
	s.set(func() { s.down = false })
	time.Sleep(5 * ttl)
	return session
}

func TestASlowConnectLosesNothing(t *testing.T) {
	for _, connect := range []time.Duration{35 * ttl / 100, 9 * ttl / 10} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			session := outageOf(t, s, func() { s.connect = connect })
			if seen := s.seen(); !session.Alive() || seen.connects != 2 || seen.pooled == 0 {
				t.Errorf("connecting in %v: alive %v after %d connections and %d heartbeats over the pool", connect,
					session.Alive(), seen.connects, seen.pooled)
			}
		})
	}
}

// Broken by tries that may take a TTL and no more: none would ever succeed.
func TestAConnectSlowerThanATTLSucceedsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session := outageOf(t, s, func() { s.connect = 5 * ttl / 2 })
		time.Sleep(2 * ttl)
		s.set(func() { s.pooled = 0 })
		time.Sleep(ttl)
		if seen := s.seen(); !session.Alive() || seen.pooled != 0 {
			t.Errorf("alive %v with %d heartbeats over the pool, want 0", session.Alive(), seen.pooled)
		}
	})
}

func TestASlowFirstConnectLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{connect: 9 * ttl / 10}
		session, _ := start(t, s)
		time.Sleep(2 * ttl)
		if seen := s.seen(); !session.Alive() || seen.connects != 1 || seen.pooled != 4 {
			t.Errorf("alive %v after %d connections and %d heartbeats over the pool, want 1 and 4", session.Alive(),
				seen.connects, seen.pooled)
		}
	})
}

func TestASlowConnectIsWaitedForAlsoWhereThePoolIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session := outageOf(t, s, func() { s.connect, s.full = 4*ttl/10, true })
		if seen := s.seen(); !session.Alive() || seen.connects != 2 {
			t.Errorf("alive %v after %d connections", session.Alive(), seen.connects)
		}
	})
}

func TestAConnectIntoADeadAddressDoesNotHoldUpTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		time.Sleep(ttl + ttl/50)
		s.set(func() { s.down, s.full, s.silent = true, true, 1 })
		time.Sleep(ttl / beatsPerTTL)
		s.set(func() { s.down = false })
		time.Sleep(2 * ttl / beatsPerTTL)
		if seen := s.seen(); seen.connects != 2 {
			t.Errorf("%d connections two intervals after the server came back, want 2", seen.connects)
		}
		time.Sleep(2 * ttl)
		if seen := s.seen(); !session.Alive() || seen.connects != 2 {
			t.Errorf("alive %v with %d connections", session.Alive(), seen.connects)
		}
	})
}

func TestASlowAnswerStartsNoCycleOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		time.Sleep(ttl + ttl/50)
		s.set(func() { s.beat, s.full = 3*ttl/10, true }) // longer than an interval
		time.Sleep(10 * ttl)
		if seen := s.seen(); !session.Alive() || seen.connects != 2 {
			t.Errorf("alive %v with %d connections, want 2", session.Alive(), seen.connects)
		}
		s.set(func() { s.beat, s.full = 0, false })
		time.Sleep(2 * ttl)
		s.set(func() { s.pooled = 0 })
		time.Sleep(2 * ttl)
		if seen := s.seen(); seen.pooled != 0 || seen.connects-seen.closes != 1 {
			t.Errorf("%d heartbeats over the pool, %d connections open, want 0 and 1", seen.pooled,
				seen.connects-seen.closes)
		}
	})
}

// Otherwise a heartbeat over the pool that fails in the moment in which the next one is due costs
// half an interval, which a slow server does not leave.
func TestAFailedHeartbeatDoesNotPutOffTheNext(t *testing.T) {
	h := &heart{Session: &Session{config: Config{Clock: clock.Func(func() time.Duration { return ttl })}},
		interval: ttl / beatsPerTTL}
	for _, left := range []time.Duration{0, h.interval / 8, h.interval} {
		h.due = ttl + left
		if h.beatSoon(); h.due > ttl+min(left, h.interval/2) {
			t.Errorf("a heartbeat due in %v is sent in %v", left, h.due-ttl)
		}
	}
}

func TestAConnectionThatGoesSilentLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		session, _ := start(t, s)
		time.Sleep(ttl + ttl/50)
		s.set(func() { s.beat, s.connect = 100*ttl, ttl/2 }) // the next connection is good, and slow
		time.Sleep(2 * ttl / beatsPerTTL)
		s.set(func() { s.beat = 0 })
		time.Sleep(7 * ttl / 10) // not only when the silent one has failed
		if seen := s.seen(); seen.connects != 2 {
			t.Errorf("%d connections made", seen.connects)
		}
		time.Sleep(3 * ttl)
		if seen := s.seen(); !session.Alive() || seen.connects != 2 || seen.connects-seen.closes != 1 {
			t.Errorf("alive %v, %d connections made, %d closed", session.Alive(), seen.connects, seen.closes)
		}
	})
}

func TestOneHeartbeatOverThePoolAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{silent: 1 << 20, full: true}
		session, _ := start(t, s)
		for range 100 {
			session.Check()
			time.Sleep(time.Millisecond)
		}
		if seen := s.seen(); seen.pooled != 1 {
			t.Errorf("%d heartbeats over the pool at a time", seen.pooled)
		}
	})
}
