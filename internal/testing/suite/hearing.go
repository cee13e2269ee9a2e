package suite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// tardy is a server whose answer to a heartbeat on its first connection comes late, once.
type tardy struct {
	driver.Backend

	mu    sync.Mutex
	beats []int         // by reserved connection, those that were answered
	open  int           // reserved connections
	late  chan struct{} // not nil: the answer comes when it is closed
	held  bool          // an answer waits for that
}

type tardyUpkeep struct {
	driver.Upkeep
	of *tardy
	at int // which connection
}

func (b *tardy) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	up, err := b.Backend.Upkeep(ctx, session)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open++
	b.beats = append(b.beats, 0)
	return tardyUpkeep{up, b, len(b.beats) - 1}, nil
}

func (u tardyUpkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	alive, err := u.Upkeep.Heartbeat(ctx, session, ttl)
	u.of.mu.Lock()
	late := u.of.late
	u.of.held = u.of.held || u.at == 0 && late != nil
	u.of.mu.Unlock()
	if u.at == 0 && late != nil {
		<-late
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.of.beats[u.at]++
	return alive, err
}

func (u tardyUpkeep) Close() error {
	u.of.mu.Lock()
	u.of.open--
	u.of.mu.Unlock()
	return u.Upkeep.Close()
}

// sees waits until something is so.
func (b *tardy) sees(t testing.TB, what string, so func() bool) {
	t.Helper()
	eventually(t, patience, what, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return so()
	})
}

// Broken by a client that forgets on which connection it is to listen with the one that it had
// beside that.
func listensAfterLateBeat(t *testing.T, e *env) {
	if err := canListen(t, e); err != nil {
		t.Log(err) // it can only be polled, before a late heartbeat and after
		return
	}
	a := e.app(t, 6)
	server := &tardy{Backend: a.Backend}
	a.Backend = server
	c := e.clientOf(t, a)
	held := lock(t, e.client(t), "n")
	lock(t, c, "own")
	server.sees(t, "a heartbeat", func() bool { return len(server.beats) == 1 && server.beats[0] > 0 })
	late := make(chan struct{})
	server.mu.Lock()
	server.late = late
	server.mu.Unlock()
	interval := longTTL / 5
	e.moveClients(t, interval)
	server.sees(t, "an answer that is late", func() bool { return server.held })
	e.moveClients(t, interval)
	server.sees(t, "a heartbeat on a second connection", func() bool {
		return len(server.beats) == 2 && server.beats[1] > 0
	})
	before := server.beats[0]
	server.mu.Lock()
	server.late = nil
	server.mu.Unlock()
	close(late)
	server.sees(t, "the late answer", func() bool { return server.beats[0] > before })
	for range 5 { // until one of the two connections is closed
		if server.mu.Lock(); server.open == 1 {
			server.mu.Unlock()
			break
		}
		n := server.beats[0] + server.beats[1]
		server.mu.Unlock()
		e.moveClients(t, interval)
		server.sees(t, "another heartbeat", func() bool { return server.beats[0]+server.beats[1] > n })
	}
	server.sees(t, "one connection", func() bool { return server.open == 1 })
	waiting := locking(t.Context(), c, "n")
	e.queued(t, "n", 1)
	eventually(t, patience, "the client listens", func() bool { return c.Stats().Listening })
	unlock(t, held)
	granted(t, soon, waiting)
}

// canListen is why the engine can only be polled, or nil.
func canListen(t *testing.T, e *env) error {
	l := newLine(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch err := drivertest.Listen(ctx, l.Backend, l.session(), cancel, func(protocol.Hint) {}); {
	case errors.Is(err, driver.ErrUnsupported):
		return err
	case !errors.Is(err, context.Canceled):
		t.Fatal(err)
	}
	return nil
}

// pause lets time go on for the clients alone, and for none of their timers until resume is called.
func (e *env) pause(t testing.TB, by time.Duration) (resume func()) {
	if e.wiring.Through != nil {
		return e.app(t, 1).mover.Pause(by)
	}
	return e.clocks.clock.Pause(by)
}

// moveClients lets time go on for the clients alone, and does not wait for their heartbeats.
func (e *env) moveClients(t testing.TB, by time.Duration) {
	if e.wiring.Through != nil {
		e.app(t, 1).mover.Move(by)
		return
	}
	e.clocks.clock.Move(by)
}
