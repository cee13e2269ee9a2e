//go:build unix

package fault

import (
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// What is found of processes on one host.
const (
	burials    = "burial"     // a session was buried whose process lived
	haste      = "haste"      // a lease was not waited for, and its holder's process lived
	succession = "succession" // locks of killed processes moved too late, too often
)

// How soon the lock of a killed process has to be with the next. On two cores that others use, a
// process gets its turn tenths of a second late, and so does a writer of an SQLite file. So prompt
// is judged by the median, and 99 of 100 have to move within sure: that is three times sooner than
// the lease ends, with which a lock moves whose holder was not buried. How many were prompt is
// printed.
const (
	prompt = 500 * time.Millisecond
	sure   = hostTTL / 4
	// tardy is how many of a hundred may be late, and one if they are fewer.
	tardy = 1
	// recovery is how long a process that was in trouble may have no connection after it.
	recovery = hostTTL * 3 / 8
	// enough is how many kills a median is judged of.
	enough = 20
)

// death is a kill.
type death struct {
	*neighbor
	at      span
	genuine bool // its file was a proof
}

// tenure is a hold, as far as its process has told.
type tenure struct {
	by          *neighbor
	name        string
	token       int64
	portion     portion
	asked, from time.Duration
	over        time.Duration // it was given up, or its loss was noticed; forever: neither
	lease       time.Duration // its lease cannot have ended before
}

// request is a Lock or TryLock.
type request struct {
	name         string
	asked, until time.Duration // until it returned; forever: it did not
	granted      bool
}

// sessions are those of a process in the order of their beginning, and of each the last time before
// a heartbeat that succeeded.
func (n *neighbor) sessions() (beats map[string]time.Duration, order []string) {
	beats = map[string]time.Duration{}
	for _, e := range n.all() {
		switch e.What {
		case evOpened:
			order = append(order, e.Session)
			beats[e.Session] = e.At
		case evBeat:
			beats[e.Session] = max(beats[e.Session], e.At)
		}
	}
	return beats, order
}

// tenures reads the holds of a process. A hold is of the session that was the last one when it was
// asked for, or of one that was opened until it was there.
func (n *neighbor) tenures() (all []*tenure) {
	beats, _ := n.sessions()
	open, asked := map[int]*tenure{}, map[int]*tenure{}
	last := ""
	for _, e := range n.all() {
		t := open[e.Op]
		switch {
		case e.What == evOpened:
			last = e.Session
			for _, t := range asked {
				t.lease = min(t.lease, beats[last]+hostTTL)
			}
		case e.What == evAsked:
			t = &tenure{by: n, name: e.Name, portion: e.Portion, asked: e.At, over: forever, lease: forever}
			if last != "" {
				t.lease = beats[last] + hostTTL
			}
			asked[e.Op] = t
		case e.What == evHeld && asked[e.Op] != nil:
			t = asked[e.Op]
			t.token, t.from = e.Token, e.At
			open[e.Op] = t
			delete(asked, e.Op)
			all = append(all, t)
		case e.What == evRefused:
			delete(asked, e.Op)
		case t != nil && (e.What == evEnding || e.What == evLost || e.What == evUnlocked):
			t.over = min(t.over, e.At)
		}
	}
	return all
}

func (n *neighbor) requests() (all []*request) {
	open := map[int]*request{}
	for _, e := range n.all() {
		switch r := open[e.Op]; {
		case e.What == evAsked:
			r = &request{name: e.Name, asked: e.At, until: forever}
			open[e.Op], all = r, append(all, r)
		case r != nil && r.until == forever && (e.What == evHeld || e.What == evRefused):
			r.until, r.granted = e.At, e.What == evHeld
		}
	}
	return all
}

// burials judges the sessions that were buried since it was last called. It MUST be called by the
// goroutine that kills.
func (h *host) burials() {
	h.Helper()
	rows, err := h.sql.QueryContext(h.Context(),
		"SELECT id, buried_by FROM dblock_sessions WHERE buried_because <> ''")
	require.NoError(h, err)
	defer rows.Close()
	fresh := map[string]string{}
	for rows.Next() {
		var id, by string
		require.NoError(h, rows.Scan(&id, &by))
		if !h.buried[id] {
			fresh[id] = by
		}
	}
	require.NoError(h, rows.Err())
	for _, n := range h.all {
		_, sessions := n.sessions()
		for _, id := range sessions {
			by, is := fresh[id]
			if !is {
				continue
			}
			h.buried[id] = true
			h.tried("burials", 1)
			if n.killed.to == 0 {
				h.Errorf("%s: session %s of %s was buried by session %q, and the process lives", burials, id,
					n.label, by)
			}
		}
	}
}

// judge reads what all processes have told, after they have ended.
func (h *host) judge() {
	h.Helper()
	var actors []*process
	byName := map[string][]*tenure{}
	requests := map[*neighbor][]*request{}
	for _, n := range h.all {
		actors = append(actors, n.process)
		for _, t := range n.tenures() {
			byName[t.name] = append(byName[t.name], t)
		}
		requests[n] = n.requests()
	}
	for _, all := range byName {
		slices.SortFunc(all, func(a, b *tenure) int { return int(a.from - b.from) })
	}
	h.exclusive(actors...)
	h.tell(haste, hasty(byName))
	for _, d := range h.deaths {
		h.locksOf(d, byName, requests)
	}
	h.delayed()
}

// hasty are the grants that came before the lease of a holder could have ended, whose process lived
// and did not know of an end.
func hasty(byName map[string][]*tenure) (found []string) {
	const rounding = 100 * time.Millisecond
	for name, all := range byName {
		for i, t := range all {
			until := min(t.over, t.lease-rounding)
			if t.by.killed.to != 0 {
				until = min(until, t.by.killed.from)
			}
			for _, next := range all[i+1:] {
				if next.from >= until {
					break
				}
				if next.by != t.by && next.token > t.token && !next.portion.beside([]portion{t.portion}) {
					found = append(found, fmt.Sprintf("%s: %s had %v with token %d and a lease until %v at least, and "+
						"was succeeded by %s at %v", name, t.by.label, t.portion, t.token, t.lease, next.by.label,
						next.from))
				}
			}
		}
	}
	return found
}

// locksOf measures when the locks moved that a killed process had taken whole, and for which
// others waited.
func (h *host) locksOf(d death, byName map[string][]*tenure, requests map[*neighbor][]*request) {
	h.Helper()
	for name, all := range byName {
		i := slices.IndexFunc(all, func(t *tenure) bool { return t.by == d.neighbor && t.over == forever })
		if i < 0 || all[i].portion.Units != 0 || all[i].lease < d.at.from+sure {
			continue
		}
		moved := forever
		if next := slices.IndexFunc(all, func(t *tenure) bool { return t.from > d.at.from }); next >= 0 {
			moved = all[next].from
		}
		switch waited, excused := d.awaited(name, min(moved, d.at.from+sure), requests); {
		case excused || waited && !d.genuine:
			h.tried("kills excused", 1)
		case waited:
			h.moved(d, name, moved-d.at.from)
		}
	}
}

// troubled reports whether a process was stopped or cut off between two moments, or shortly before.
func (n *neighbor) troubled(from, to time.Duration) bool {
	return slices.ContainsFunc(n.trouble, func(s span) bool { return s.from < to && s.to > from-recovery })
}

// awaited reports whether somebody waited for a name from a kill until then. The kill is excused if
// one of those was killed, stopped or cut off meanwhile: it may be granted the lock in its turn,
// and cannot say so.
func (d death) awaited(name string, until time.Duration, requests map[*neighbor][]*request) (waited, excused bool) {
	for n, all := range requests {
		troubled := n.troubled(d.at.from, until)
		for _, r := range all {
			switch {
			case n == d.neighbor || r.name != name || r.asked > d.at.from || r.until < d.at.from:
			case n.killed.to != 0 && n.killed.from <= d.at.from: // its place is with it
			case troubled, n.killed.to != 0 && n.killed.from < until:
				excused = true
			case r.granted || r.until > until: // it is no TryLock
				waited = true
			}
		}
	}
	return waited, waited && excused
}

// moved counts a lock that moved, or did not: forever.
func (h *host) moved(d death, name string, delay time.Duration) {
	h.Helper()
	h.tried("kills of holders", 1)
	switch {
	case delay <= prompt:
		h.tried(fmt.Sprintf("succeeded within %v", prompt), 1)
	case delay > sure:
		h.tried("succeeded late", 1)
	}
	if delay > prompt {
		h.Logf("%s, killed at %v, was succeeded as the holder of %s after %v", d.label, d.at.from, name, delay)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delays = append(h.delays, delay.Round(time.Millisecond))
}

// delayed judges the kills of all rounds so far.
func (h *host) delayed() {
	h.Helper()
	h.mu.Lock()
	kills, late := len(h.delays), h.counts["succeeded late"]
	slices.Sort(h.delays)
	median := time.Duration(0)
	if kills >= enough {
		median = h.delays[kills/2]
	}
	h.mu.Unlock()
	const whose = "locks of killed processes for which others waited"
	if late > max(1, kills*tardy/100) {
		h.Errorf("%s: of %d %s, %d moved after more than %v", succession, kills, whose, late, sure)
	}
	if median > prompt {
		h.Errorf("%s: half of %d %s moved after %v or more", succession, kills, whose, median)
	}
}
