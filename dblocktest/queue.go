package dblocktest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/queue"
)

// enqueued is what Enqueue answers.
type enqueued struct {
	driver.Grant
	outcome driver.Outcome
}

func (l *line) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	a, err := ask(ctx, l, func() (enqueued, error) { return l.enqueue(rs) })
	return a.Grant, a.outcome, err
}

func (d *database) enqueue(rs []driver.Request) (enqueued, error) {
	n := d.locks[rs[0].Name]
	if n == nil {
		return enqueued{}, nil
	}
	for i, r := range rs {
		same := func(other string) bool { return other == r.Attempt }
		if slices.ContainsFunc(n.queue, func(p *place) bool { return same(p.Attempt) }) ||
			slices.ContainsFunc(rs[:i], func(other driver.Request) bool { return same(other.Attempt) }) {
			return enqueued{}, fmt.Errorf("dblocktest: attempt %s waits for %q already", r.Attempt, n.is)
		}
	}
	capacity, collides := d.standing(n).Join(rs[0])
	if collides {
		return enqueued{}, fmt.Errorf("%w: %q has %d units, the request is for one of %d: readers and permits do not share a name",
			driver.ErrCapacity, n.is, capacity, rs[0].Of)
	}
	a := enqueued{outcome: driver.Queued}
	if t := d.take(rs[0]); t.ok {
		a = enqueued{t.Grant, driver.Granted}
		rs = rs[1:]
		a.Contended = len(rs) > 0
	}
	for _, r := range rs {
		n.queue = append(n.queue, &place{Request: r, ticket: n.ticket, since: d.now()})
		n.ticket++
		n.capacity = capacity
	}
	d.stirQueues()
	return a, nil
}

func (l *line) Leave(ctx context.Context, session, name string, attempts []string) ([]driver.Handoff, error) {
	return ask(ctx, l, func() (next []driver.Handoff, err error) {
		if n := l.locks[name]; n != nil && n.leave(session, attempts...) {
			next, _ = l.handOn(n, session)
		}
		return next, nil
	})
}

// leave gives up places in the queue, and reports whether there was one.
func (n *name) leave(session string, attempts ...string) bool {
	before := len(n.queue)
	n.queue = slices.DeleteFunc(n.queue, func(p *place) bool { return p.Session == session && slices.Contains(attempts, p.Attempt) })
	return len(n.queue) < before
}

// stirQueues wakes those in this package that wait for a queue to change.
func (d *database) stirQueues() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (l *line) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	return ask(ctx, l, func() (states []driver.State, err error) {
		for _, name := range names {
			if n := l.locks[name]; n != nil {
				states = append(states, l.look(n, session))
			}
		}
		return states, nil
	})
}

// look is a name as a session sees it; of no session ("") no place is its own.
func (d *database) look(n *name, session string) driver.State {
	s := driver.State{Name: n.is, Waiters: len(n.queue), Used: n.used(), Sharing: len(n.shares), Rest: d.rest(n)}
	if s.Waiters > 0 || s.Used > 0 {
		s.Capacity = n.capacity
	}
	contended := s.Waiters > 0
	for _, h := range n.holders() {
		holder := d.holder(h)
		holder.Grant.Contended = contended
		if s.Holder.Session == "" || holder.Left < s.Holder.Left {
			s.Holder = holder
		}
		if h.session == session {
			own := driver.Own{Attempt: h.attempt, Grant: holder.Grant}
			if h == n.whole && n.inRun() {
				own.Grant.Token, own.Grant.Run = n.first, n.run()
			}
			s.Granted = append(s.Granted, own)
		}
	}
	for _, p := range n.queue {
		switch {
		case session == "" || p.Session != session:
		case n.whole != nil && n.whole.session == session && p.token > n.first && p.token <= n.last:
			s.Granted = append(s.Granted, driver.Own{Attempt: p.Attempt, Grant: driver.Grant{Token: p.token, Contended: contended, Run: n.run()}})
		default:
			s.Queued = append(s.Queued, p.Attempt)
		}
	}
	slices.SortFunc(s.Granted, func(a, b driver.Own) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) })
	if contended && n.whole == nil {
		head := n.queue[0]
		s.Ready = s.Rest <= 0 && queue.Of(s).Fits(head.Units, head.Of)
		if s.Sharing > 0 {
			s.Head = d.waiter(head)
		}
	}
	return s
}

// holder is a holder as others see it.
func (d *database) holder(h *hold) driver.Holder {
	holder := driver.Holder{
		Session: h.session, Host: h.host, Thread: h.thread, Attempt: h.attempt, Units: h.units,
		Grant: driver.Grant{Token: h.token}, Since: timeOf(h.since), Left: d.left(h.session),
	}
	if h.ends != 0 {
		holder = holder.WithFixedLease(microseconds(h.ends - d.now()))
	}
	return holder
}

// waiter is a place in a queue as others see it.
func (d *database) waiter(p *place) driver.Holder {
	return driver.Holder{
		Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt, Units: p.Units, Since: timeOf(p.since), Left: d.left(p.Session),
	}
}
