// Package deadlock finds waiters that wait for each other in a cycle.
//
// # When to check
//
// An owner waits for one name at a time, and got what it holds before it began to wait. So a cycle
// is complete when its youngest waiter joins its queue. One check per waiter is enough, some time
// after it joined: the youngest waiter of a cycle gives up, and no other waiter does. Later checks,
// at intervals that double, cover failed checks and owners with several waiting goroutines.
//
// # Which waiters are stuck
//
// A cycle that passes through a semaphore may be no deadlock, because another holder may release
// enough units. So the graph is reduced first (Holt, Some deadlock properties of computer systems,
// 1972):
//
//   - An owner that waits for nothing is assumed to release everything that it holds.
//   - An owner with a request that can then be granted is assumed to do the same.
//   - The owners that are left when nothing changes any more are stuck.
//
// Queues are first-come, first-served. So a waiter's request can be granted when there is room for
// the largest request up to and including its own: earlier waiters get theirs and release it. The
// error of the waiter that gives up shows a cycle among the stuck owners.
package deadlock

import (
	"slices"
	"strings"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/queue"
)

// Link is one edge of a cycle: a waiter, and a holder of the name that it waits for.
type Link struct {
	Host, Thread         string // of the waiter
	Name                 string
	Units                int    // requested; 0: the whole name
	HeldHost, HeldThread string // of the holder, which is the waiter of the next link
}

// Cycle begins with the waiter that gives up.
type Cycle []Link

// owner identifies a holder or waiter.
type owner struct{ session, host, thread string }

func ownerOf(w driver.Wait) owner { return owner{w.Session, w.Host, w.Thread} }

// graph is the wait-for graph at one moment.
type graph struct {
	queued  map[owner][]driver.Wait  // each owner's places in queues
	holders map[string][]driver.Wait // by name
	stuck   map[owner]bool
	edges   map[owner]map[owner]driver.Wait // from each stuck owner to its blockers, with the place in the queue
}

// Find returns, for each attempt that must give up, the cycle that it waits in: it is the youngest
// waiter there. Where several cycles share owners, one attempt at a time gives up. stuck are the
// attempts that wait for a cycle, or wait in one without being its youngest waiter.
func Find(waits []driver.Wait, attempts []string) (found map[string]Cycle, stuck map[string]bool) {
	g := graph{queued: map[owner][]driver.Wait{}, holders: map[string][]driver.Wait{}, stuck: map[owner]bool{}, edges: map[owner]map[owner]driver.Wait{}}
	waiting := map[string]driver.Wait{} // by attempt
	for _, w := range waits {
		if w.Holds {
			g.holders[w.Name] = append(g.holders[w.Name], w)
			continue
		}
		g.queued[ownerOf(w)] = append(g.queued[ownerOf(w)], w)
		g.stuck[ownerOf(w)] = true
		waiting[w.Attempt] = w
	}
	g.reduce()
	for o := range g.stuck {
		g.edges[o] = g.blockers(o)
	}
	youngest := map[owner]driver.Wait{} // of the component that the owner is in
	for _, component := range g.components() {
		var last driver.Wait
		for _, o := range component {
			for _, w := range g.blocked(o) {
				if last.Attempt == "" || younger(w, last) {
					last = w
				}
			}
		}
		for _, o := range component {
			youngest[o] = last
		}
	}
	found, stuck = map[string]Cycle{}, map[string]bool{}
	for _, attempt := range attempts {
		w, there := waiting[attempt]
		switch o := ownerOf(w); {
		case !there || !g.stuck[o]:
		case youngest[o].Attempt == attempt:
			found[attempt] = g.cycle(o)
		default:
			stuck[attempt] = true
		}
	}
	return found, stuck
}

func younger(a, b driver.Wait) bool {
	if !a.Since.Equal(b.Since) {
		return a.Since.After(b.Since)
	}
	return a.Attempt > b.Attempt
}

// reduce leaves in stuck only the owners that are stuck.
func (g *graph) reduce() {
	for changed := true; changed; {
		changed = false
		for o := range g.stuck {
			if len(g.blocked(o)) == 0 {
				delete(g.stuck, o)
				changed = true
			}
		}
	}
}

// blocked returns the owner's requests that cannot be granted even when every owner that is not
// stuck releases everything. An owner does not block itself: another of its goroutines may release
// what it holds. The client detects the cases where none can.
func (g *graph) blocked(o owner) (blocked []driver.Wait) {
	for _, w := range g.queued[o] {
		var is queue.State
		for _, h := range g.holders[w.Name] {
			if holder := ownerOf(h); holder != o && g.stuck[holder] {
				is = is.With(h.Units, h.Capacity)
				is.Held = is.Held || h.Units == 0
			}
		}
		if !is.Fits(w.Need, w.Capacity) {
			blocked = append(blocked, w)
		}
	}
	return blocked
}

// blockers returns the stuck owners that o waits for, with o's place in the queue of each.
func (g *graph) blockers(o owner) map[owner]driver.Wait {
	blockers := map[owner]driver.Wait{}
	for _, w := range g.blocked(o) {
		for _, h := range g.holders[w.Name] {
			if holder := ownerOf(h); holder != o && g.stuck[holder] {
				blockers[holder] = w
			}
		}
	}
	return blockers
}

// components returns the strongly connected components of more than one owner (Tarjan, Depth-first
// search and linear graph algorithms, 1972).
func (g *graph) components() (components [][]owner) {
	index, low := map[owner]int{}, map[owner]int{}
	on := map[owner]bool{}
	var stack []owner
	var visit func(o owner)
	visit = func(o owner) {
		index[o] = len(index) + 1
		low[o] = index[o]
		stack = append(stack, o)
		on[o] = true
		for n := range g.edges[o] {
			if index[n] == 0 {
				visit(n)
				low[o] = min(low[o], low[n])
			} else if on[n] {
				low[o] = min(low[o], index[n])
			}
		}
		if low[o] != index[o] {
			return
		}
		at := slices.Index(stack, o)
		component := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, n := range component {
			on[n] = false
		}
		if len(component) > 1 {
			components = append(components, component)
		}
	}
	for o := range g.stuck {
		if index[o] == 0 {
			visit(o)
		}
	}
	return components
}

// cycle returns the shortest path from an owner back to itself. Among paths of the same length it
// returns the first in the order of the owners.
func (g *graph) cycle(start owner) Cycle {
	paths := map[owner]Cycle{}
	for front := []owner{start}; len(front) > 0; {
		var further []owner
		for _, o := range front {
			edges := g.edges[o]
			for _, to := range sorted(edges) {
				w := edges[to]
				path := append(slices.Clone(paths[o]), Link{o.host, o.thread, w.Name, w.Units, to.host, to.thread})
				if to == start {
					return path
				}
				if _, seen := paths[to]; !seen {
					paths[to] = path
					further = append(further, to)
				}
			}
		}
		front = further
	}
	return nil
}

func sorted(of map[owner]driver.Wait) []owner {
	owners := make([]owner, 0, len(of))
	for o := range of {
		owners = append(owners, o)
	}
	slices.SortFunc(owners, func(a, b owner) int {
		return strings.Compare(a.session+"\x00"+a.host+"\x00"+a.thread, b.session+"\x00"+b.host+"\x00"+b.thread)
	})
	return owners
}
