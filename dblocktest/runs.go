package dblocktest

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
)

// endRun ends the run that has the name. Its members lose their places if they have been served,
// and wait again otherwise.
func (n *name) endRun(served bool) {
	if served {
		n.queue = slices.DeleteFunc(n.queue, func(p *place) bool { return p.token > 0 && p.token <= n.last })
	}
	for _, p := range n.queue {
		p.token = 0
	}
	n.first = n.last
}

// members are the places of the run that has the name, in the order of their tokens.
func (n *name) members() (members []*place) {
	for _, p := range n.queue {
		if p.token > 0 {
			members = append(members, p)
		}
	}
	return members
}

// leaveRun takes the first of a run out of it, so that the next is the first. It reports false
// where the attempt is none such, or has none behind it.
func (n *name) leaveRun(d *database, session, attempt string) bool {
	if !n.inRun() || n.whole.session != session || n.whole.attempt != attempt {
		return false
	}
	members := n.members()
	if len(members) == 0 {
		return false
	}
	n.show(d, members[0])
	return true
}

// show makes a member the first of the run. Those before it lose their places.
func (n *name) show(d *database, m *place) {
	n.queue = slices.DeleteFunc(n.queue, func(p *place) bool { return p.token > 0 && p.token <= m.token })
	n.first, n.since = m.token, d.now()
	n.whole.host, n.whole.thread, n.whole.attempt = m.Host, m.Thread, m.Attempt
	n.whole.holds, n.whole.since = 1, n.since
	d.stirQueues()
}

func (l *line) Settle(ctx context.Context, h driver.Held, singly bool) error {
	return l.do(ctx, func() error { return l.settle(h, singly) })
}

func (d *database) settle(h driver.Held, singly bool) error {
	n := d.locks[h.Name]
	switch {
	case n == nil || n.whole == nil || n.whole.session != h.Session || h.Token < n.first || h.Token > n.last:
		return driver.ErrNotHeld
	case !n.inRun():
		return nil
	}
	if h.Token > n.first {
		i := slices.IndexFunc(n.queue, func(p *place) bool { return p.token == h.Token })
		if i < 0 {
			return driver.ErrNotHeld
		}
		n.show(d, n.queue[i])
	}
	n.last, n.whole.token = h.Token, h.Token
	for _, p := range n.members() {
		p.token, p.Passable = 0, p.Passable && !singly
	}
	return nil
}
