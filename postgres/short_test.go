package postgres

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// A short way is there for its round trips. The figures are those in the comments of short.
func TestAShortWayTakesFewerRoundTrips(t *testing.T) {
	db := dbtest.Postgres(t)
	proxy := dbtest.NewProxy(t, db.Addr(t))
	e := inside.Of(New(db.Through(t, proxy).Pool(t))).Backend
	for _, session := range []string{"a", "b"} {
		require.NoError(t, e.OpenSession(t.Context(), driver.Session{ID: session, TTL: time.Hour}))
	}
	for says, c := range map[string]struct {
		scene          func(ops *scene) protocol.Op
		short, general int64
	}{
		"a take":                       {func(s *scene) protocol.Op { s.free(); return s.take("a") }, 1, 2},
		"a take of a name without row": {func(s *scene) protocol.Op { return s.take("a") }, 2, 5},
		"a place in a queue":           {func(s *scene) protocol.Op { s.held("a"); return s.join("b") }, 1, 2},
		"a release": {func(s *scene) protocol.Op {
			return protocol.Release(s.held("a"), false, false)
		}, 1, 2},
		"a hand-over": {func(s *scene) protocol.Op {
			h := s.held("a")
			s.run(s.join("b"))
			return protocol.Release(h, true, false)
		}, 1, 2},
	} {
		var got [2]int64
		for i := range got {
			for round := range 2 { // the first prepares its statements
				s := &scene{t, e, says + string(rune('0'+2*i+round))}
				op := c.scene(s)
				if i == 1 {
					op = drivertest.General{Op: op}
				}
				var requests atomic.Int64
				proxy.Watch(func([]byte) { requests.Add(1) })
				s.run(op)
				proxy.Watch(nil)
				got[i] = requests.Load()
			}
		}
		if got != [2]int64{c.short, c.general} {
			t.Errorf("%s: %d round trips, the general way %d; want %d and %d", says, got[0], got[1], c.short, c.general)
		}
	}
}

// scene is a name.
type scene struct {
	t    *testing.T
	e    driver.Backend
	name string
}

func (s *scene) request(session string) protocol.Request {
	return protocol.Request{Name: s.name, Session: session, Attempt: s.name + session, Patient: true}
}

func (s *scene) take(session string) protocol.Op { return protocol.Take{Request: s.request(session)} }
func (s *scene) join(session string) protocol.Op { return protocol.Join{Request: s.request(session)} }

func (s *scene) run(op protocol.Op) protocol.Result {
	s.t.Helper()
	result, err := driver.Do(s.t.Context(), s.e, op)
	if err != nil || result.Outcome == protocol.Undone {
		s.t.Fatalf("%+v: %+v, %v", op, result, err)
	}
	return result
}

func (s *scene) held(session string) protocol.Held {
	s.t.Helper()
	return protocol.Held{Name: s.name, Session: session, Token: s.run(s.take(session)).Grant.Token}
}

func (s *scene) free() {
	s.t.Helper()
	s.run(protocol.Release(s.held("before"), false, false))
}
