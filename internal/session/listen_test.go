package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const interval = ttl / beatsPerTTL

// wired is a server whose reserved connections are told apart.
type wired struct {
	*server
	wires []*wire
}

// wire is a reserved connection. It carries no answer before until.
type wire struct {
	*wired
	until   time.Time
	closed  chan struct{}
	once    sync.Once
	listens bool
}

func (w *wired) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	if _, err := w.server.Upkeep(ctx, session); err != nil {
		return nil, err
	}
	l := &wire{wired: w, closed: make(chan struct{})}
	w.set(func() { w.wires = append(w.wires, l) })
	return l, nil
}

func (l *wire) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	var until time.Time
	l.set(func() { until = l.until })
	if err := pass(ctx, time.Until(until)); err != nil {
		return false, err
	}
	select {
	case <-l.closed:
		return false, driver.Fail(driver.ErrUnavailable, errors.New("closed"))
	default:
		return l.server.Heartbeat(ctx, session, ttl)
	}
}

func (l *wire) Listen(ctx context.Context, _ string, ready func(), _ func(protocol.Hint)) error {
	ready()
	l.set(func() { l.listens = true })
	defer l.set(func() { l.listens = false })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return driver.Fail(driver.ErrUnavailable, errors.New("closed"))
	}
}

func (l *wire) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.server.Close()
}

// listening is the connections on which somebody listens, by number.
func (w *wired) listening() (on []int) {
	synctest.Wait()
	w.set(func() {
		for i, l := range w.wires {
			if l.listens {
				on = append(on, i)
			}
		}
	})
	return on
}

// late has the answers of a connection come so much later than now.
func (w *wired) late(i int, by time.Duration) {
	w.set(func() { w.wires[i].until = time.Now().Add(by) })
}

// startListening opens a session that listens as its client does: again after each end.
func startListening(t *testing.T) (*wired, *Session) {
	w := &wired{server: &server{}}
	session, _ := startOn(t, w, w.server)
	go func() {
		for session.Context().Err() == nil {
			err := session.Listen(session.Context(), func() {}, nil)
			if session.Context().Err() == nil && !errors.Is(err, driver.ErrUnavailable) {
				t.Error(err)
			}
			_ = pass(session.Context(), interval/100)
		}
	}()
	time.Sleep(ttl + interval/2)
	return w, session
}

// Broken by forgetting which connection is the session's with the one that was made beside it.
func TestAHeartbeatThatIsLateOnceLeavesTheSessionListening(t *testing.T) {
	for _, by := range []time.Duration{interval / 2, interval * 3 / 2, interval * 5 / 2, 3 * interval, 2 * ttl} {
		synctest.Test(t, func(t *testing.T) {
			w, session := startListening(t)
			w.late(0, interval/2+by) // from the next heartbeat on
			time.Sleep(3 * ttl)
			if on := w.listening(); len(on) != 1 {
				t.Errorf("%v: it listens on %v", by, on)
			}
			if open := w.seen().connects - w.seen().closes; open != 1 {
				t.Errorf("%v: %d connections are open, want 1", by, open)
			}
			if !session.Alive() {
				t.Errorf("%v: %v", by, context.Cause(session.Context()))
			}
		})
	}
}

// Broken by listening on a connection that answers no more: nothing is heard until it fails.
func TestASessionListensOnTheConnectionThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startListening(t)
		w.late(0, ttl)                                  // from the next heartbeat on, which fails after a TTL
		time.Sleep(interval/2 + interval + interval/10) // until the one after it, on a second connection
		if on := w.listening(); !slices.Equal(on, []int{1}) {
			t.Errorf("it listens on %v, want the second, which answers", on)
		}
		time.Sleep(interval / 4)
		w.wires[1].Close()
		time.Sleep(2 * ttl)
		if on := w.listening(); len(on) != 1 || on[0] == 1 {
			t.Errorf("it listens on %v after the second was lost", on)
		}
	})
}

// Broken by taking a heartbeat that was just sent for late, when Check asks for another: the
// listener would lose its connection to a second one that answers first.
func TestCheckBesideAHeartbeatMakesNoSecondConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, session := startListening(t)
		before := w.seen().connects
		w.late(0, interval/2+interval/4) // the next heartbeat takes a quarter of an interval
		time.Sleep(interval/2 + interval/8)
		session.Check()
		time.Sleep(interval / 4)
		if on := w.listening(); !slices.Equal(on, []int{0}) || w.seen().connects != before {
			t.Errorf("it listens on %v, after %d connects", on, w.seen().connects)
		}
	})
}

func TestAListenerHasNoConnectionForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{connect: 2 * listenTimeout}
		session, _ := start(t, s)
		began := time.Now()
		err := session.Listen(t.Context(), func() { t.Error("ready") }, nil)
		if !errors.Is(err, driver.ErrUnavailable) || time.Since(began) != listenTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := session.Listen(t.Context(), func() { session.End(ErrKilled) }, nil); !errors.Is(err,
			driver.ErrUnavailable) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
