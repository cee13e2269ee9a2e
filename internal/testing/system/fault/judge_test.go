//go:build unix

package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The judge of every kind: whether a history of holds is one that locks allow. Whoever held what
// tells it as holds (newHold). Both sweeps go through a history of any length once, one in the
// order of time, the other in that of tokens. impossible searches for an order of all that was
// done.

// overlaps lists the moments at which more of a name was held than there is, and the tokens that
// did not rise.
func overlaps(holds []*hold) []string { return append(misplaced(holds), crowded(holds)...) }

// holdsOf are the holds of all actors.
func holdsOf(actors ...*process) (all []*hold) {
	for _, p := range actors {
		all = append(all, p.holds()...)
	}
	return all
}

// phasesByName are those of all holds.
func phasesByName(holds []*hold) map[string][]*phase {
	byName := map[string][]*phase{}
	for _, h := range holds {
		byName[h.name] = append(byName[h.name], h.phases...)
	}
	return byName
}

func (f *phase) String() string {
	return fmt.Sprintf("%s %d with %v and token %d", f.by, f.op, f.portion, f.token)
}

// crowded are the moments at which more of a name was held for certain than there is of it.
func crowded(holds []*hold) (found []string) {
	type turn struct {
		*phase
		at    time.Duration
		begin bool
	}
	for name, phases := range phasesByName(holds) {
		var turns []turn
		for _, f := range phases {
			if f.sure < f.live {
				turns = append(turns, turn{f, f.sure, true}, turn{f, f.live, false})
			}
		}
		slices.SortStableFunc(turns, func(a, b turn) int {
			if c := cmp.Compare(a.at, b.at); c != 0 || a.begin == b.begin {
				return c
			}
			if a.begin {
				return 1
			}
			return -1
		})
		var now []*phase
		for _, t := range turns {
			if !t.begin {
				now = slices.DeleteFunc(now, func(f *phase) bool { return f == t.phase })
				continue
			}
			if !t.beside(portions(now)) {
				found = append(found, fmt.Sprintf("%s: %v held it at %v, while it was held by %v", name, t.phase, t.at,
					now))
			}
			now = append(now, t.phase)
		}
	}
	return found
}

func portions(phases []*phase) (gs []portion) {
	for _, f := range phases {
		gs = append(gs, f.portion)
	}
	return gs
}

// misplaced returns the grants with tokens in another order than their times. A holder with a lower
// token was granted the name before. So at a grant every holder with a lower token has the name, if
// it believes in it after that grant was reported.
func misplaced(holds []*hold) (found []string) {
	for name, phases := range phasesByName(holds) {
		slices.SortStableFunc(phases, func(a, b *phase) int { return cmp.Compare(a.token, b.token) })
		later := make([]time.Duration, len(phases)+1) // when the first of those from here on was heard of
		later[len(phases)] = forever
		for i, f := range slices.Backward(phases) {
			later[i] = later[i+1]
			if f.grant {
				later[i] = min(later[i], f.from)
			}
		}
		var before []*phase
		for i, f := range phases {
			if i > 0 && phases[i-1].token == f.token && phases[i-1].hold != f.hold {
				found = append(found, fmt.Sprintf("%s: one token twice: %v, and %v", name, phases[i-1], f))
			}
			if f.grant {
				var now []*phase
				for _, b := range before {
					counted := b.hold == f.hold || len(now) > 0 &&
						slices.ContainsFunc(now, func(n *phase) bool { return n.hold == b.hold })
					if b.live >= f.from && !counted { // the first phase of a hold that lived on is the one it was in
						now = append(now, b)
					}
				}
				if !f.beside(portions(now)) {
					found = append(found, fmt.Sprintf("%s: %v from %v on, while it was held by %v", name, f, f.from,
						now))
				}
			}
			before = slices.DeleteFunc(append(before, f), func(b *phase) bool { return b.live < later[i+1] })
		}
	}
	return found
}
