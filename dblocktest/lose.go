package dblocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Lose takes a lock from its holder, in any process, as if its lease had expired unnoticed. When
// Lose returns, the lock's context has ended with a cause that matches ErrLost, and the next waiter
// has the name, or it is free. The token is fenced: later grants have higher ones. The holder's
// goroutines are not stopped. Unlock returns ErrLost. Other locks of the client stay.
//
// A context derived from the lock's, such as that of the function given to Do, ends a moment later.
//
// The test fails if the lock is not held, and if its process is Down: there, use Advance.
func (f *Fake[TX]) Lose(t testing.TB, lock dblock.Handle) {
	t.Helper()
	if err := f.link.of.lose(held{lock.Name(), lock.Token(), lock.Context()}); err != nil {
		t.Fatalf("dblocktest: Lose %q: %v", lock.Name(), err)
	}
}

// LoseName is Lose for code that hides its lock, as Do does: it takes the name from its holder. The
// test also fails if several holders share the name.
func (f *Fake[TX]) LoseName(t testing.TB, name string) {
	t.Helper()
	lock, err := f.link.of.heldAs(name)
	if err == nil {
		err = f.link.of.lose(lock)
	}
	if err != nil {
		t.Fatalf("dblocktest: LoseName %q: %v", name, err)
	}
}

// held is a lock of a process.
type held struct {
	name  string
	token int64
	ctx   context.Context
}

// heldAs returns the lock of a name, if its holder is the only one.
func (d *database) heldAs(name string) (held, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	all := d.Holders(name)
	if len(all) > 1 {
		return held{}, errShared
	}
	for _, h := range all {
		w := d.clients[h.Session]
		if w == nil || w.link.core == nil {
			return held{}, errDown
		}
		if ctx := w.link.core.ContextOf(h.Attempt); ctx != nil {
			return held{name, h.Token, ctx}, nil
		}
	}
	return held{}, driver.ErrNotHeld
}

var errShared = errors.New("several share it: Lose takes it from one of them")

// lose grants the lock to a session that does not exist, until its holder has noticed.
func (d *database) lose(lock held) error {
	if lock.ctx.Err() != nil { // the token of a cohort would stand for the member that has the name now
		return driver.ErrNotHeld
	}
	took, w, err := d.seize(lock.name, lock.token)
	if err != nil {
		return err
	}
	limit := time.After(waitLimit)
	for ended := false; !ended; {
		w.Check()
		select {
		case <-lock.ctx.Done():
			ended = true
		case <-time.After(time.Millisecond):
		case <-limit:
			return errors.New("its client has not noticed")
		}
	}
	d.Mu.Lock()
	defer d.Mu.Unlock()
	_, err = d.Apply(protocol.Release(took, true, false))
	delete(d.SessionRows, took.Session)
	return err
}

// seize confiscates a lock if its client can notice that.
func (d *database) seize(name string, token int64) (took protocol.Held, w *watched, err error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, h := range d.Holders(name) {
		if h.First <= token && token <= h.Token {
			if w = d.clients[h.Session]; w == nil || w.link.Down() {
				return took, nil, errDown
			}
			return d.confiscate(name, h), w, nil
		}
	}
	return took, nil, driver.ErrNotHeld
}

// confiscate transfers the lock of a holder to a session without a client, with a new token.
func (d *database) confiscate(name string, h memory.Holder) protocol.Held {
	nobody := &memory.SessionRow{Session: driver.Session{ID: rand.Text()}, Started: d.Micros(), Expires: math.MaxInt64}
	d.SessionRows[nobody.ID] = nobody
	took := protocol.Held{Name: name, Session: nobody.ID, Shared: h.Units > 0}
	result, _ := d.Apply(confiscation{took, h})
	took.Token = result.Grant.Token
	return took
}

// confiscation transfers the lock of a holder to another session.
type confiscation struct {
	protocol.Held
	from memory.Holder
}

func (c confiscation) Apply(n *protocol.Name) (protocol.Result, error) {
	n.Token = max(n.Token+1, n.Now)
	if c.Shared {
		share := c.from.Share
		share.Session, share.Host, share.Thread, share.Attempt = c.Session, "nobody", "", c.Session
		share.Token, share.Ends = n.Token, 0
		n.GoneShares, n.PutShares = []protocol.Share{c.from.Share}, []protocol.Share{share}
	} else {
		n.Session, n.Host, n.Thread, n.Attempt = c.Session, "nobody", "", c.Session
		n.First, n.Last, n.Ends = n.Token, n.Token, 0
	}
	return protocol.Result{Outcome: protocol.Done, Grant: protocol.Grant{Token: n.Token}}, nil
}
