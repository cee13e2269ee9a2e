// Package deadlock finds waiters that wait for each other in a cycle.
//
// # When to check
//
// A goroutine waits for one name at a time, and acquired its holds before it began to wait. So a
// cycle is complete when its youngest waiter joins its queue. One check per waiter is enough, some
// time after it joined: the youngest waiter of a cycle gives up, and no other waiter does. Later
// checks, at intervals that double, cover failed checks and owners with several waiting goroutines.
//
// # Which waiters are stuck
//
// A hold is released once all requests under its context are granted. Another goroutine of its
// owner may wait beside the hold, and does not delay its release. An attempt's name tells under
// which holds it was requested: see Below.
//
// A cycle that passes through a semaphore may be no deadlock, because another holder may release
// enough units. So the graph is reduced first (Holt, Some deadlock properties of computer systems,
// 1972):
//
//   - A hold under which nothing waits is assumed to be released.
//   - A place is assumed to be granted if its request can then be granted.
//   - The places that are left when nothing changes any more are stuck.
//
// Queues are first-come, first-served. So a waiter's request can be granted when there is room for
// the largest request up to and including its own: earlier waiters are granted theirs and release
// them. The error of the waiter that gives up shows a cycle among the stuck places.
package deadlock

import (
	"cmp"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
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

// graph is the wait-for graph at one moment. Its nodes are the places in queues, and after them the
// holds.
type graph struct {
	nodes   []driver.Wait    // in an order that depends only on the nodes themselves
	places  int              // the number of nodes that are places
	holders map[string][]int // by name, the holds
	// under has, for each hold, the places that were requested under it, and for each place its
	// holds.
	under  [][]int
	stuck  []bool // of each place
	waited []int  // for each hold, the number of places under it that are stuck
}

func newGraph(waits []driver.Wait) *graph {
	g := &graph{nodes: slices.Clone(waits), holders: map[string][]int{}}
	slices.SortFunc(g.nodes, func(a, b driver.Wait) int {
		switch {
		case a.Holds != b.Holds && b.Holds:
			return -1
		case a.Holds != b.Holds:
			return 1
		}
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Thread, b.Thread),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
	})
	g.under, g.waited = make([][]int, len(g.nodes)), make([]int, len(g.nodes))
	places := map[owner][]int{}
	for i, w := range g.nodes {
		if !w.Holds {
			g.places++
			places[ownerOf(w)] = append(places[ownerOf(w)], i)
			continue
		}
		g.holders[w.Name] = append(g.holders[w.Name], i)
		for _, p := range places[ownerOf(w)] {
			if under(g.nodes[p].Attempt, w.Attempt) {
				g.under[i], g.under[p] = append(g.under[i], p), append(g.under[p], i)
				g.waited[i]++
			}
		}
	}
	g.stuck = slices.Repeat([]bool{true}, g.places)
	return g
}

// Find returns, for each attempt that must give up, its cycle: the attempt is the youngest waiter
// there. Where several cycles share waiters, one attempt at a time gives up. stuck are the attempts
// that wait for a cycle, or wait in one without being its youngest waiter.
func Find(waits []driver.Wait, attempts []string) (found map[string]Cycle, stuck map[string]bool) {
	g := newGraph(waits)
	g.reduce()
	youngest := make([]int, g.places) // of the component of the place
	for i := range youngest {
		youngest[i] = -1
	}
	for _, component := range g.components() {
		last := -1
		for _, i := range component {
			if i < g.places && (last < 0 || younger(g.nodes[i], g.nodes[last])) {
				last = i
			}
		}
		for _, i := range component {
			if i < g.places {
				youngest[i] = last
			}
		}
	}
	waiting := map[string]int{} // by attempt
	for i, w := range g.nodes[:g.places] {
		waiting[w.Attempt] = i
	}
	found, stuck = map[string]Cycle{}, map[string]bool{}
	for _, attempt := range attempts {
		i, there := waiting[attempt]
		switch {
		case !there || !g.stuck[i]:
		case youngest[i] == i:
			found[attempt] = g.cycle(i)
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

// reduce leaves in stuck only the places that are stuck.
func (g *graph) reduce() {
	for changed := true; changed; {
		changed = false
		for i := range g.stuck {
			if g.stuck[i] && !g.blocked(i) {
				g.stuck[i], changed = false, true
				for _, h := range g.under[i] {
					g.waited[h]--
				}
			}
		}
	}
}

// blocked reports whether a request cannot be granted even when every hold is released under which
// no place is stuck. An owner does not block itself: another of its goroutines may release its
// hold. The client detects the cases where none can.
func (g *graph) blocked(place int) bool {
	var is protocol.Row
	for _, h := range g.blockers(place) {
		if hold := g.nodes[h]; hold.Units > 0 {
			is = is.With(hold.Units, hold.Capacity)
		} else {
			is.Session = hold.Session
		}
	}
	return !is.Fits(g.nodes[place].Need, g.nodes[place].Capacity)
}

// blockers returns the holds that a place waits for and that wait themselves.
func (g *graph) blockers(place int) (blockers []int) {
	w := g.nodes[place]
	for _, h := range g.holders[w.Name] {
		if g.waited[h] > 0 && ownerOf(g.nodes[h]) != ownerOf(w) {
			blockers = append(blockers, h)
		}
	}
	return blockers
}

// next returns the nodes for which a node waits.
func (g *graph) next(i int) (next []int) {
	if i < g.places {
		return g.blockers(i)
	}
	for _, p := range g.under[i] {
		if g.stuck[p] {
			next = append(next, p)
		}
	}
	return next
}

// components returns the strongly connected components of more than one node (Tarjan, Depth-first
// search and linear graph algorithms, 1972).
func (g *graph) components() (components [][]int) {
	index, low, on := make([]int, len(g.nodes)), make([]int, len(g.nodes)), make([]bool, len(g.nodes))
	count := 0
	var stack []int
	var visit func(i int)
	visit = func(i int) {
		count++
		index[i], low[i] = count, count
		stack = append(stack, i)
		on[i] = true
		for _, n := range g.next(i) {
			if index[n] == 0 {
				visit(n)
				low[i] = min(low[i], low[n])
			} else if on[n] {
				low[i] = min(low[i], index[n])
			}
		}
		if low[i] != index[i] {
			return
		}
		at := slices.Index(stack, i)
		component := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, n := range component {
			on[n] = false
		}
		if len(component) > 1 {
			components = append(components, component)
		}
	}
	for i := range g.places {
		if g.stuck[i] && index[i] == 0 {
			visit(i)
		}
	}
	return components
}

// cycle returns the shortest path from a place back to itself. Among paths of the same length it
// returns the first in the order of the nodes.
func (g *graph) cycle(start int) Cycle {
	paths := map[int]Cycle{start: nil}
	for front := []int{start}; len(front) > 0; {
		var further []int
		for _, i := range front {
			for _, to := range g.next(i) {
				path := paths[i]
				if w, h := g.nodes[i], g.nodes[to]; i < g.places {
					path = append(slices.Clone(path), Link{w.Host, w.Thread, w.Name, w.Units, h.Host, h.Thread})
				}
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
