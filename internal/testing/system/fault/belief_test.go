//go:build unix

package fault

import "time"

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
	phases []*phase      // at least one
}

// phase is a hold as long as it is of one portion.
type phase struct {
	*hold
	portion
	token int64
	asked time.Duration // it did not begin before
	from  time.Duration // it had begun; forever where that is not known
	sure  time.Duration // from then on the name was held in this portion at least
	live  time.Duration // believed in then for certain, in this portion at least; the last phase ends with the hold
	grant bool          // it began with a token of its own
}

// newHold is a hold of one portion that was asked for and granted then. It is not known yet for how
// long it was believed in.
func newHold(by string, op int, name string, p portion, token int64, asked, from time.Duration) *hold {
	h := &hold{by: by, op: op, name: name, token: token, asked: asked, from: from, live: asked, until: forever}
	h.phases = []*phase{{h, p, token, asked, from, from, asked, true}}
	return h
}

// end ends a hold that was believed in until then.
func (h *hold) end(live time.Duration) {
	h.live, h.until = max(h.live, live), live
	h.last().live = h.live
}

// last MUST NOT be called before evHeld.
func (h *hold) last() *phase { return h.phases[len(h.phases)-1] }

const forever = time.Duration(1<<63 - 1)

// holds reads them from what an actor said.
func (p *process) holds() []*hold {
	asked, open, converting := map[int]time.Duration{}, map[int]*hold{}, map[*hold]event{}
	var all []*hold
	for _, e := range p.all() {
		h := open[e.Op]
		switch {
		case e.What == evAsked:
			asked[e.Op] = e.At
		case e.What == evHeld:
			h = newHold(p.label, e.Op, e.Name, e.Portion, e.Token, asked[e.Op], e.At)
			open[e.Op] = h
			all = append(all, h)
		case h == nil:
		case e.What == evEnding:
			h.live = max(h.live, e.Live)
		case e.What == evConverting && e.Portion == reader:
			h.downgrades(e)
		case e.What == evConverting:
			h.last().live, converting[h] = max(h.last().live, e.Live), e
		case e.What == evConverted:
			h.converted(converting[h], e)
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
		for _, f := range h.phases {
			h.live = max(h.live, f.live)
		}
		// What came of a hold after its context had ended is not known, nor what came of a
		// downgrade that was never heard of, where the hold was not seen alive after it was asked
		// for: it may have been over before.
		for i, f := range h.phases {
			if i > 0 && (f.asked > h.until || f.grant && f.from > h.until || f.from == forever && f.asked >= h.live) {
				h.phases = h.phases[:i]
				break
			}
		}
		h.last().live = h.live
	}
	return all
}

// downgrades: whatever comes of it, from when it is called the holder has a reader's share at
// least.
func (h *hold) downgrades(e event) {
	before := h.last()
	if before.from == forever { // once more, since it is not known what came of it
		return
	}
	before.live = max(before.live, e.Live)
	h.phases = append(h.phases, &phase{h, reader, before.token, e.At, forever, max(before.sure, before.live),
		before.live, false})
}

// converted is what came of a Downgrade or TryUpgrade.
func (h *hold) converted(asked, e event) {
	now := h.last()
	switch {
	case e.Portion == reader && e.Err == "":
		now.from = e.At
	case e.Portion == reader && (e.is(kindCapacity) || e.is(kindNotAcquired)):
		h.phases = h.phases[:len(h.phases)-1]
	case e.Portion == portion{} && e.Err == "":
		h.phases = append(h.phases, &phase{h, portion{}, e.Token, asked.At, e.At, e.At, asked.Live, true})
	}
}

// exclusive fails where more believed in the same name than may.
func (w *world) exclusive(actors ...*process) {
	w.Helper()
	w.tell(exclusion, overlaps(holdsOf(actors...)))
}

// tell reports what a checker has found: ten cases of it, and how many more there are.
func (w *world) tell(checker string, found []string) {
	w.Helper()
	for i, text := range found {
		if i == 10 {
			w.Errorf("%s: and %d more", checker, len(found)-i)
			break
		}
		w.Errorf("%s: %s", checker, text)
	}
}

// exact checks that what the locks protect was written as often as the actors were told, or not
// sure.
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
			w.Errorf("%s was written %d times; the actors know of %d and are not sure of %d", name, n, written[name],
				unsure[name])
		}
		w.Logf("%s: %d writes, of which %d unsure", name, n, n-written[name])
	}
}
