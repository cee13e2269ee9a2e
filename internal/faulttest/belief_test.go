package faulttest

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// hold is what one actor was granted and believed in.
type hold struct {
	by     string
	op     int
	name   string
	token  int64
	asked  time.Duration
	from   time.Duration // Lock returned
	live   time.Duration // believed in at that moment for certain; may be before from
	until  time.Duration // not believed in any more at that moment; forever where that is not known
	lost   time.Duration // when it was told of the loss; 0: it was not lost
	reason string        // why it was lost
}

const forever = time.Duration(1<<63 - 1)

// holds reads them from what an actor said.
func (p *process) holds() []*hold {
	asked, open := map[int]time.Duration{}, map[int]*hold{}
	var all []*hold
	for _, e := range p.all() {
		h := open[e.Op]
		switch {
		case e.What == evAsked:
			asked[e.Op] = e.At
		case e.What == evHeld:
			h = &hold{by: p.label, op: e.Op, name: e.Name, token: e.Token, asked: asked[e.Op], from: e.At, live: asked[e.Op], until: forever}
			open[e.Op] = h
			all = append(all, h)
		case h == nil:
		case e.What == evEnding:
			h.live = max(h.live, e.Live)
		case e.What == evLost:
			h.live, h.until = max(h.live, e.Live), min(h.until, e.At)
			if e.is(kindLost) && !e.is(kindClosed) {
				h.lost, h.reason = e.At, e.Err
			}
		case e.What == evUnlocked:
			h.until = min(h.until, e.At)
		}
	}
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	for _, h := range all {
		if h.until == forever && killed.to != 0 {
			h.until = killed.to
		}
	}
	return all
}

// overlaps are the cases in which two believed to hold the same name, and those in which a later grant had a token
// that was not higher.
func overlaps(actors ...*process) (found []string) {
	byName := map[string][]*hold{}
	for _, p := range actors {
		for _, h := range p.holds() {
			byName[h.name] = append(byName[h.name], h)
		}
	}
	for name, holds := range byName {
		slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
		for i := 1; i < len(holds); i++ {
			a, b := holds[i-1], holds[i]
			switch {
			case a.token == b.token:
				found = append(found, fmt.Sprintf("%s: token %d twice, %s %d and %s %d", name, a.token, a.by, a.op, b.by, b.op))
			case a.live >= b.from:
				found = append(found, fmt.Sprintf("%s: %s %d held token %d until %v at least, %s %d token %d from %v",
					name, a.by, a.op, a.token, a.live, b.by, b.op, b.token, b.from))
			}
		}
	}
	return found
}

// exclusive fails where two believed in the same name.
func (w *world) exclusive(actors ...*process) {
	w.Helper()
	for _, text := range overlaps(actors...) {
		w.Error(text)
	}
}

// exact checks that what the locks protect was written as often as the actors were told, or not sure.
func (w *world) exact(names []string, actors ...*process) {
	w.Helper()
	written, unsure := map[string]int64{}, map[string]int64{}
	for _, p := range actors {
		asked := map[int]string{}
		for _, e := range p.all() {
			switch {
			case e.What == evHeld:
				asked[e.Op] = e.Name
			case e.What == evWrote && e.Err == "":
				written[e.Name] += e.Rows
				delete(asked, e.Op)
			}
		}
		for _, name := range asked { // errors, and writes that the process did not live to tell of
			unsure[name]++
		}
	}
	for _, name := range names {
		n := w.count("SELECT n FROM resource WHERE name = '%s'", name) % 1000000 // a hog adds that much
		if n < written[name] || n > written[name]+unsure[name] {
			w.Errorf("%s was written %d times; the actors know of %d and are not sure of %d", name, n, written[name], unsure[name])
		}
		w.Logf("%s: %d writes, of which %d unsure", name, n, n-written[name])
	}
}
