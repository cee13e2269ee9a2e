package dblocktest

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
)

// owner is who waits and holds.
type owner struct{ session, host, thread string }

func (l *line) WaitGraph(ctx context.Context, attempts []string) ([]driver.Wait, error) {
	return ask(ctx, l, func() ([]driver.Wait, error) {
		g := graph{database: l.database, names: map[string]bool{}, owners: map[owner]bool{}}
		for _, n := range l.locks {
			g.places(n, func(p *place) bool { return slices.Contains(attempts, p.Attempt) })
		}
		for g.grows() {
		}
		return g.waits, nil
	})
}

// graph is the part of the wait-for graph that was reached. The members of a run do not wait, and a
// run is no holder: the name does not tell which of its members has the lock.
type graph struct {
	*database
	waits  []driver.Wait
	names  map[string]bool // whose holders were reached
	owners map[owner]bool  // whose places were reached
}

// grows follows what was reached by one step; false: there is nothing more.
func (g *graph) grows() bool {
	before := len(g.waits)
	for _, w := range slices.Clone(g.waits) {
		o := owner{w.Session, w.Host, w.Thread}
		switch {
		case !w.Holds && !g.names[w.Name]:
			g.names[w.Name] = true
			g.holders(g.locks[w.Name])
		case w.Holds && !g.owners[o]:
			g.owners[o] = true
			for _, n := range g.locks {
				g.places(n, func(p *place) bool { return owner{p.Session, p.Host, p.Thread} == o })
			}
		}
	}
	return len(g.waits) > before
}

func (g *graph) holders(n *name) {
	for _, h := range n.holders() {
		if g.alive(h.session) && !(h == n.whole && n.inRun()) {
			g.waits = append(g.waits, driver.Wait{
				Name: n.is, Session: h.session, Host: h.host, Thread: h.thread, Attempt: h.attempt, Holds: true,
				Units: h.units, Capacity: h.of, Since: timeOf(h.since),
			})
		}
	}
}

// places adds those of a queue that are meant. What one needs is the largest request up to and with
// its own; room is what may be in use for all of them to fit.
func (g *graph) places(n *name, meant func(p *place) bool) {
	need, room, whole := 0, driver.Readers, false
	for _, p := range n.queue {
		if p.token > 0 || !g.alive(p.Session) {
			continue
		}
		need, room, whole = max(need, p.Units), min(room, p.Of-p.Units), whole || p.Units == 0
		if whole {
			need, room = 0, 0
		}
		if meant(p) && !g.reached(p.Attempt) {
			g.waits = append(g.waits, driver.Wait{
				Name: n.is, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
				Units: p.Units, Capacity: need + room, Need: need, Since: timeOf(p.since),
			})
		}
	}
}

func (g *graph) reached(attempt string) bool {
	return slices.ContainsFunc(g.waits, func(w driver.Wait) bool { return !w.Holds && w.Attempt == attempt })
}
