// Package deadlock finds out whether those who wait for each other wait in a circle.
//
// # When to look
//
// An owner waits for one thing at a time. So whatever each one in a circle holds, it got before it
// began to wait, and the circle is complete when its youngest waiter joins its queue. It is enough
// that everybody looks once, a while after he began to wait: whoever finds himself the youngest in
// a circle gives up, and nobody else does. That he looks again, after twice the time and so on, is
// for failures, and for owners of whom several goroutines wait.
//
// # Who is stuck
//
// A circle of who waits for whom is no deadlock where a semaphore is part of it: some other
// holder's units may do. So the graph is reduced first (Holt, Some deadlock properties of computer
// systems, 1972): who waits for nothing is assumed to give back all that he has; who can have what
// he wants then, likewise; who is left when nothing changes any more is stuck. Since queues are
// first come first served, somebody in a queue can have what he wants when there is room for the
// largest request up to his own; those before him get theirs and give it back. What is said of the
// one who gives up is a circle among the stuck.
package deadlock

import (
	"slices"
	"strings"

	"github.com/dblock-go/dblock/driver"
)

// Link is one part of a circle: somebody waits for a name that the next one holds.
type Link struct {
	Host, Thread         string // who waits
	Name                 string
	Units                int    // that it wants; 0: the whole name
	HeldHost, HeldThread string // who holds it, and is the waiter of the next link
}

// Cycle is a circle, beginning with the one who gives up.
type Cycle []Link

// owner is who holds and waits.
type owner struct{ session, host, thread string }

func ownerOf(w driver.Wait) owner { return owner{w.Session, w.Host, w.Thread} }

// graph is who waits for whom at one moment.
type graph struct {
	places  map[owner][]driver.Wait // in queues
	holders map[string][]driver.Wait
	stuck   map[owner]bool
	next    map[owner]map[owner]driver.Wait // of the stuck: whom they wait for, and by which of their places
}

// Find returns the circles in which attempts wait that are the youngest waiters in them: those who
// are to give up. Of those who wait for each other in several circles one is enough at a time.
// stuck are those attempts that wait for a circle, or in one and are not the youngest.
func Find(waits []driver.Wait, attempts []string) (found map[string]Cycle, stuck map[string]bool) {
	g := graph{places: map[owner][]driver.Wait{}, holders: map[string][]driver.Wait{}, stuck: map[owner]bool{}, next: map[owner]map[owner]driver.Wait{}}
	places := map[string]driver.Wait{}
	for _, w := range waits {
		if w.Holds {
			g.holders[w.Name] = append(g.holders[w.Name], w)
			continue
		}
		g.places[ownerOf(w)] = append(g.places[ownerOf(w)], w)
		g.stuck[ownerOf(w)] = true
		places[w.Attempt] = w
	}
	g.reduce()
	for o := range g.stuck {
		g.next[o] = g.ahead(o)
	}
	youngest := map[owner]driver.Wait{} // of those who wait for each other, for each of them
	for _, group := range g.groups() {
		var last driver.Wait
		for _, o := range group {
			for _, w := range g.blocked(o) {
				if last.Attempt == "" || younger(w, last) {
					last = w
				}
			}
		}
		for _, o := range group {
			youngest[o] = last
		}
	}
	found, stuck = map[string]Cycle{}, map[string]bool{}
	for _, attempt := range attempts {
		w, there := places[attempt]
		switch o := ownerOf(w); {
		case !there || !g.stuck[o]:
		case youngest[o].Attempt == attempt:
			found[attempt] = g.circle(o)
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

// reduce leaves those who are stuck.
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

// blocked returns the places of an owner that it cannot get if only those who are not stuck give
// back what they have. What it has itself is not in its own way: several goroutines of it may be at
// work (the client knows of those that cannot).
func (g *graph) blocked(o owner) (blocked []driver.Wait) {
	for _, w := range g.places[o] {
		used := 0
		whole := false
		for _, h := range g.holders[w.Name] {
			if holder := ownerOf(h); holder != o && g.stuck[holder] {
				used += h.Units
				whole = whole || h.Units == 0
			}
		}
		if whole || w.Need == 0 && used > 0 || w.Need > 0 && used+w.Need > w.Capacity {
			blocked = append(blocked, w)
		}
	}
	return blocked
}

// ahead returns whom an owner waits for among the stuck, and by which of its places.
func (g *graph) ahead(o owner) map[owner]driver.Wait {
	next := map[owner]driver.Wait{}
	for _, w := range g.blocked(o) {
		for _, h := range g.holders[w.Name] {
			if holder := ownerOf(h); holder != o && g.stuck[holder] {
				next[holder] = w
			}
		}
	}
	return next
}

// groups are those who wait for each other, directly or through others (Tarjan, Depth-first search
// and linear graph algorithms, 1972).
func (g *graph) groups() (groups [][]owner) {
	index, low := map[owner]int{}, map[owner]int{}
	on := map[owner]bool{}
	var stack []owner
	var visit func(o owner)
	visit = func(o owner) {
		index[o] = len(index) + 1
		low[o] = index[o]
		stack = append(stack, o)
		on[o] = true
		for n := range g.next[o] {
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
		group := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, n := range group {
			on[n] = false
		}
		if len(group) > 1 {
			groups = append(groups, group)
		}
	}
	for o := range g.stuck {
		if index[o] == 0 {
			visit(o)
		}
	}
	return groups
}

// circle returns the shortest way from an owner back to itself; of several the first by names.
func (g *graph) circle(me owner) Cycle {
	ways := map[owner]Cycle{}
	for front := []owner{me}; len(front) > 0; {
		var further []owner
		for _, o := range front {
			next := g.next[o]
			for _, to := range sorted(next) {
				w := next[to]
				way := append(slices.Clone(ways[o]), Link{o.host, o.thread, w.Name, w.Units, to.host, to.thread})
				if to == me {
					return way
				}
				if _, seen := ways[to]; !seen {
					ways[to] = way
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
