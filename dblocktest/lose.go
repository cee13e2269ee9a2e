package dblocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// Held is a lock that somebody holds. A *dblock.Lock of any type is one.
type Held interface {
	Name() string
	Token() int64
	Context() context.Context
}

// Lose takes a lock from its holder, whichever process that is, as if its lease had ended without
// its knowing. When it returns, the lock's context has ended with a cause that matches ErrLost, and
// the name has gone to the next waiter, or is free. The token is fenced: those granted later are
// higher. The holder's goroutines are not stopped; Unlock returns ErrLost. Other locks of the
// client stay.
//
// A context that follows the lock's, such as that of the function given to Do, ends a moment later.
//
// The test fails where the lock is not held, and where its process is Down: there, Advance ends the
// lease.
func (f *Fake[TX]) Lose(t testing.TB, lock Held) {
	t.Helper()
	if err := f.line.lose(lock); err != nil {
		t.Fatalf("dblocktest: Lose %q: %v", lock.Name(), err)
	}
}

// lose gives the lock to nobody, who keeps it until its holder has noticed.
func (d *database) lose(lock Held) error {
	if lock.Context().Err() != nil { // of a run, its token would stand for the member that has the name now
		return driver.ErrNotHeld
	}
	took, w, err := d.confiscate(lock.Name(), lock.Token())
	if err != nil {
		return err
	}
	limit := time.After(waitLimit)
	for ended := false; !ended; {
		w.Check()
		select {
		case <-lock.Context().Done():
			ended = true
		case <-time.After(time.Millisecond):
		case <-limit:
			return errors.New("its client has not noticed")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vacate(driver.Release(took, true))
	delete(d.sessions, took.Session)
	return nil
}

// confiscate gives a lock to a session that nobody has, with a token of its own.
func (d *database) confiscate(is string, token int64) (took driver.Held, w *watched, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.locks[is]
	h := n.heldBy(token)
	if h == nil {
		return took, nil, driver.ErrNotHeld
	}
	if w = d.clients[h.session]; w == nil || w.line.down() {
		return took, nil, errDown
	}
	if h == n.whole {
		n.endRun(false)
	}
	nobody := &sessionRow{Session: driver.Session{ID: rand.Text()}, started: d.now(), expires: math.MaxInt64}
	d.sessions[nobody.ID] = nobody
	n.token = max(n.token+1, d.now())
	h.session, h.host, h.thread, h.attempt = nobody.ID, "nobody", "", nobody.ID
	h.token, h.ends = n.token, 0
	if h == n.whole {
		n.first, n.last = n.token, n.token
	}
	return driver.Held{Name: is, Session: nobody.ID, Token: n.token, Shared: h.units > 0}, w, nil
}

// heldBy is the holder with a token, which of a run is the token of any member; nil: there is none.
func (n *name) heldBy(token int64) *hold {
	if n == nil {
		return nil
	}
	for _, h := range n.holders() {
		if h.token == token || h == n.whole && n.first <= token && token <= n.last {
			return h
		}
	}
	return nil
}
