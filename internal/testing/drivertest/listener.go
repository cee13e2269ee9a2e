package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// Listener is a Listen that runs, and the connection of its session's heartbeats.
type Listener struct {
	Up    driver.Upkeep
	Hints chan protocol.Hint // that were heard
	Ended chan error         // what Listen has returned

	t     testing.TB
	ready chan struct{}
	stop  context.CancelFunc
}

// Hear has a session listen until the test has ended.
func Hear(t testing.TB, b driver.Backend, session string) *Listener {
	t.Helper()
	up, err := b.Upkeep(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &Listener{up, make(chan protocol.Hint, 10_000), make(chan error, 1), t, make(chan struct{}), cancel}
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.Ended <- up.Listen(ctx, session, func() { close(l.ready) }, func(h protocol.Hint) { l.Hints <- h })
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		_ = up.Close()
	})
	return l
}

// Started waits until the listener misses nothing any more.
func (l *Listener) Started() *Listener {
	l.t.Helper()
	select {
	case <-l.ready:
	case err := <-l.Ended:
		l.t.Fatalf("the listener has ended: %v", err)
	case <-time.After(patience):
		l.t.Fatal("the listener is not ready")
	}
	return l
}

// Stop stops the listener, and returns what Listen returns.
func (l *Listener) Stop() error {
	l.t.Helper()
	l.stop()
	return l.Over()
}

// Over waits for the end of the listener, and returns what Listen returns.
func (l *Listener) Over() error {
	l.t.Helper()
	select {
	case err := <-l.Ended:
		return err
	case <-time.After(patience):
		l.t.Fatal("the listener goes on")
		return nil
	}
}
