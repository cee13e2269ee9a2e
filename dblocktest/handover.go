package dblocktest

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/queue"
)

// vacated is what Vacate answers.
type vacated struct {
	next []driver.Handoff
	left bool
}

func (l *line) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	a, err := ask(ctx, l, func() (a vacated, err error) {
		a.next, a.left = l.vacate(v)
		return a, nil
	})
	return a.next, a.left, err
}

// vacate takes off a name what a vacancy says, and hands the name on.
func (d *database) vacate(v driver.Vacancy) (next []driver.Handoff, left bool) {
	n := d.locks[v.Name]
	if v.Cause == driver.ByTime && !d.expire(v.Session) && v.Token == 0 || n == nil {
		return nil, false
	}
	h := n.find(v.Session, v.Token)
	switch v.Cause {
	case driver.ByHolder:
		left = h != nil && (h.units > 0) == v.Shared
		if left && h == n.whole {
			n.endRun(true)
		}
	case driver.ByAttempt:
		if left = n.leave(v.Session, v.Attempt); left {
			break
		}
		if n.leaveRun(d, v.Session, v.Attempt) {
			return nil, true
		}
		i := slices.IndexFunc(n.holders(), func(h *hold) bool { return h.session == v.Session && h.attempt == v.Attempt })
		if left = i >= 0; left {
			h = n.holders()[i]
		}
	case driver.ByTime:
		if v.Token == 0 {
			left = n.leave(v.Session, v.Attempt)
		} else {
			left = h != nil && (d.over(h) || d.dead(v.Session))
		}
	case driver.ByForce:
		if v.Token == 0 {
			left = n.leave(v.Session, v.Attempt)
		} else if left = h != nil; left {
			v.Attempt = h.attempt
		}
		if left {
			d.tell(v.Session, driver.Hint{Attempt: v.Attempt})
			d.record(v.Event)
		}
	case driver.Nothing:
		return d.handOn(n, v.Self)
	}
	if !left {
		return nil, false
	}
	d.free(n, h)
	next, _ = d.handOn(n, v.Self)
	return next, true
}

// handOn gives what is free of a name to the first in the queue, as far as they fit, and reports
// whether that changed anything. The dead among them, and before the first that does not fit, lose
// their places. No live waiter is passed over. A name that is free has no run: what is left of one
// waits again.
func (d *database) handOn(n *name, self string) (next []driver.Handoff, changed bool) {
	d.stirQueues()
	if n.whole != nil || len(n.queue) == 0 {
		return nil, false
	}
	n.endRun(false)
	if n.rests > d.now() {
		d.forewarn(n)
		return nil, false
	}
	ends := false // what was given ends, or can be had again, at a time that those behind do not know of
	for walk := (queue.Walk{State: d.standing(n)}); walk.Goes(); walk.Waiters = len(n.queue) {
		dead := slices.IndexFunc(n.queue, func(p *place) bool { return d.alive(p.Session) })
		if dead < 0 {
			dead = len(n.queue)
		}
		n.queue = slices.Delete(n.queue, 0, dead)
		changed = changed || dead > 0
		if len(n.queue) == 0 || walk.Meet(queue.Waiter{Units: n.queue[0].Units, Of: n.queue[0].Of}) != queue.Granted {
			break
		}
		p := n.queue[0]
		n.queue = slices.Delete(n.queue, 0, 1)
		next = append(next, d.handTo(n, p)...)
		changed, ends = true, ends || p.Lease > 0 || p.MinHold > 0
	}
	for i := range next {
		next[i].Grant.Contended = len(n.queue) > 0
		if g := next[i]; g.Session != self && (g.Grant.Run.First == 0 || g.Grant.Run.First == g.Grant.Token) {
			d.tell(g.Session, hintOf(g))
		}
	}
	if ends && len(n.queue) > 0 {
		d.forewarn(n)
	}
	return next, changed
}

// hintOf brings the grant along where nothing else is to be known of it.
func hintOf(g driver.Handoff) driver.Hint {
	if g.Grant.Run.First != 0 || g.Grant.Lease != 0 {
		return driver.Hint{Attempt: g.Attempt}
	}
	return driver.Hint{Attempt: g.Attempt, Grant: g.Grant}
}

// forewarn has the first waiter that is left look, so that it knows when to look again: at the end
// of a rest, or of a lease.
func (d *database) forewarn(n *name) {
	for _, p := range n.queue {
		if d.alive(p.Session) {
			d.tell(p.Session, driver.Hint{Attempt: p.Attempt})
			return
		}
	}
}

// handTo grants a name, or units of it, to a place that has left the queue, and to those behind it
// that make a run with it. The first of the grants is that of the place.
func (d *database) handTo(n *name, p *place) []driver.Handoff {
	behind := make([]queue.Place, len(n.queue))
	for i, next := range n.queue {
		behind[i] = queue.Place{Session: next.Session, Units: next.Units, Passable: next.Passable}
	}
	members := queue.Members(queue.Place{Session: p.Session, Units: p.Units, Passable: p.Passable}, behind)
	grant := driver.Grant{Token: d.grant(n, p.Request, members), Lease: p.Lease}
	if members > 0 {
		grant.Run = n.run()
	}
	next := []driver.Handoff{{Session: p.Session, Attempt: p.Attempt, Grant: grant}}
	for _, m := range n.queue[:members] {
		grant.Token++
		m.token = grant.Token
		next = append(next, driver.Handoff{Session: m.Session, Attempt: m.Attempt, Grant: grant})
	}
	return next
}
