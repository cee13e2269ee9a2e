package ledger

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Split makes the claim that has a lock the only one that the lock is for, in the database, with
// its own owner. It precedes every statement that shows the claim to other clients, or that changes
// the lock of this claim alone. The claims behind it become a grant of their own, at the head of
// the queue. The channel is closed once the outcome is known; nil: the claim is the only one
// already, has the lock no more, or is pledged to a transaction, which detaches it. MUST be called
// within a call.
func (l *Ledger) Split(c *Claim) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := c.Grant
	switch {
	case g.present != c: // a detachment would take the lock from the present claim
		return nil
	case g.split == nil && g.state == Granted && !g.Mode.Load().single():
		g.split = make(chan struct{})
		d := l.detachment(g)
		l.config.Store.Go(func() { l.splitOff(c, d) })
	}
	return g.split
}

// Detachment returns the detachment of a claim for a transaction that releases the lock. The claims
// behind it wait until it is known whether the transaction was committed. The zero Detachment: the
// claim is the only one.
func (l *Ledger) Detachment(c *Claim) protocol.Detachment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Grant.Mode.Load().single() {
		return protocol.Detachment{}
	}
	return l.detachment(c.Grant)
}

// detachment returns the Detachment of the present claim, and gives those behind it a grant of
// their own, once. MUST be called with mu locked.
func (l *Ledger) detachment(g *Grant) protocol.Detachment {
	if g.rest == nil && len(g.waiting) > 0 {
		rest := newGrant(g.In, g.Name, deadlock.NewAttempt(""), g.waiting...)
		rest.joint = true
		rest.number()
		g.rest, g.waiting = rest, nil
		l.attempts[rest.ID] = rest
		rest.place = l.await(rest)
	}
	c := g.present
	d := protocol.Detachment{Token: c.Token(), Host: c.Owner.Host, Thread: c.Owner.Thread}
	if g.rest != nil && len(g.rest.waiting) > 0 {
		d.Behind = g.rest.request()
	}
	return d
}

// splitOff tells the database of a split until the outcome is known.
func (l *Ledger) splitOff(c *Claim, d protocol.Detachment) {
	g := c.Grant
	held, split := c.Held(), false
	within, cancel := contract.UntilClosed(l.config.Store.Tidying, g.In.Context())
	defer cancel()
	err := l.config.Store.Retry(within, store.Undoing, func() error {
		_, err := g.In.Do(l.config.Store.Tidying, protocol.Detach{Held: held, Member: d})
		switch {
		case err == nil:
			l.splitting.Worked()
			split = true
		case errors.Is(err, driver.ErrNotHeld):
			l.Lose(within, ErrDisowned, c)
			return nil // a transaction may have detached it, too
		case !l.config.Store.Transient(err) && within.Err() == nil:
			l.splitting.Failed(err, "name", g.Name)
		}
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if split {
		m := *g.Mode.Load()
		m.First, m.Last = d.Token, d.Token
		g.Mode.Store(&m)
	}
	l.resume(g, err == nil)
	close(g.split)
	g.split = nil
}

// resume lets claims that were split off wait in the queue, or request the lock again. MUST be
// called within a call, with mu locked.
func (l *Ledger) resume(g *Grant, inQueue bool) {
	rest := g.rest
	g.rest = nil
	switch {
	case rest == nil:
	case inQueue:
		l.enqueue(rest, false)
	default:
		l.fail(rest, store.ErrAgain, store.Unsure, nil)
	}
}

// Show makes an owner, in the database, the only holder of each of its locks, before it waits for
// another name. The search for deadlocks reads the holders in the database. Owners are compared as
// the database knows them, also for a lease that is acquired for a transaction.
func (l *Ledger) Show(ctx context.Context, o Owner) error {
	for _, c := range l.hidden(o) {
		if err := l.Single(ctx, c); err != nil && !errors.Is(err, contract.ErrLost) {
			return err
		}
	}
	return nil
}

// hidden returns the claims of an owner that the database may show as another owner's.
func (l *Ledger) hidden(o Owner) []*Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all(func(c *Claim) bool {
		return c.relies() && c.Owner.Host == o.Host && c.Owner.Thread == o.Thread && !c.Grant.Mode.Load().single()
	})
}
