package memory

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// owner identifies a waiter or holder.
type owner struct{ session, host, thread string }

func (l *Link) WaitGraph(ctx context.Context, from []driver.Waiting) ([]driver.Wait, error) {
	return get(ctx, l, func() []driver.Wait {
		g := graph{DB: l.DB, names: map[string]bool{}, owners: map[owner]bool{}}
		g.places(func(p protocol.Place) bool {
			return slices.Contains(from, driver.Waiting{Name: p.Name, Attempt: p.Attempt})
		})
		for i := 0; i < len(g.waits); i++ {
			g.follow(g.waits[i])
		}
		return g.waits
	})
}

// graph is the part of the wait-for graph that was reached.
type graph struct {
	*DB
	waits  []driver.Wait
	names  map[string]bool // whose holders were reached
	owners map[owner]bool  // whose places were reached
}

// follow goes from a place to the holders of the name, and from a holder to the places of its
// owner.
func (g *graph) follow(w driver.Wait) {
	o := owner{w.Session, w.Host, w.Thread}
	switch {
	case !w.Holds && !g.names[w.Name]:
		g.names[w.Name] = true
		g.holders(w.Name)
	case w.Holds && !g.owners[o]:
		g.owners[o] = true
		g.places(func(p protocol.Place) bool { return owner{p.Session, p.Host, p.Thread} == o })
	}
}

// holders adds the holders of a name. A cohort is left out: the name does not tell which of its
// members has the lock.
func (g *graph) holders(name string) {
	for _, h := range g.DB.Holders(name) {
		if g.alive(h.Session) && h.First == h.Token {
			g.waits = append(g.waits, driver.Wait{
				Name: name, Session: h.Session, Host: h.Host, Thread: h.Thread, Attempt: h.Attempt, Holds: true,
				Units: h.Units, Capacity: h.Of, Since: timeOf(h.Since),
			})
		}
	}
}

// places adds the places that meant selects, from all queues. A place needs the largest request up
// to and including its own; room is the number of units that may be in use for all of them to fit.
func (g *graph) places(meant func(p protocol.Place) bool) {
	for _, name := range g.DB.Locks.All() {
		need, room, whole := 0, protocol.Readers, false
		for _, p := range g.DB.Locks.Places(name) {
			if !g.alive(p.Session) {
				continue
			}
			need, room, whole = max(need, p.Units), min(room, p.Of-p.Units), whole || p.Units == 0
			if whole {
				need, room = 0, 0
			}
			if meant(p) && !g.reached(p.Attempt) {
				g.waits = append(g.waits, driver.Wait{
					Name: name, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
					Units: p.Units, Capacity: need + room, Need: need, Since: timeOf(p.Since),
				})
			}
		}
	}
}

func (g *graph) reached(attempt string) bool {
	return slices.ContainsFunc(g.waits, func(w driver.Wait) bool { return !w.Holds && w.Attempt == attempt })
}
