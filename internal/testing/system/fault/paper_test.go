//go:build unix

package fault

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// What the checkers say of histories that are short enough to be judged by eye. Times are in
// milliseconds.
func TestTheCheckersOnPaper(t *testing.T) {
	two, three := portion{2, permits}, portion{3, permits}
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	hold := func(g portion, token int64, asked, from, live, until int, between ...event) []event {
		told := []event{{What: evAsked, At: at(asked), Portion: g}, {What: evHeld, At: at(from), Token: token,
			Portion: g}}
		told = append(told, between...)
		return append(told, event{What: evEnding, At: at(live), Live: at(live)}, event{What: evUnlocked, At: at(until)})
	}
	regrade := func(to portion, token int64, from, till int, kinds ...string) []event {
		converted := event{What: evConverted, At: at(till), Token: token, Portion: to, Kinds: kinds}
		if len(kinds) > 0 {
			converted.Err = kinds[0]
		}
		return []event{{What: evConverting, At: at(from), Live: at(from), Portion: to}, converted}
	}
	killed := func(g portion, token int64, asked, from int, between ...event) []event {
		return hold(g, token, asked, from, 0, 0, between...)[:2+len(between)]
	}
	for _, c := range []struct {
		what  string
		right bool
		holds [][]event
	}{
		{"one after the other", true, [][]event{hold(portion{}, 1, 0, 1, 5, 6), hold(portion{}, 2, 2, 7, 8, 9)}},
		{"two at once", false, [][]event{hold(portion{}, 1, 0, 1, 5, 6), hold(portion{}, 2, 2, 4, 8, 9)}},
		{"a token that does not rise", false, [][]event{hold(portion{}, 2, 0, 1, 5, 6), hold(portion{}, 1, 7, 8, 9,
			10)}},
		{"readers at once", true, [][]event{hold(reader, 1, 0, 1, 5, 6), hold(reader, 2, 2, 3, 8, 9),
			hold(portion{}, 3, 2, 10, 11, 12)}},
		{"a writer beside a reader", false, [][]event{hold(reader, 1, 0, 1, 5, 6), hold(reader, 2, 2, 3, 8, 9),
			hold(portion{}, 3, 2, 7, 11, 12)}},
		{"a reader beside a writer", false, [][]event{hold(portion{}, 1, 0, 1, 5, 6), hold(reader, 2, 2, 3, 8, 9)}},
		{"all units", true, [][]event{hold(two, 1, 0, 1, 5, 6), hold(three, 2, 0, 1, 5, 6), hold(two, 3, 0, 7, 8, 9)}},
		{"a unit too many", false, [][]event{hold(two, 1, 0, 1, 5, 6), hold(three, 2, 0, 1, 5, 6),
			hold(portion{1, permits}, 3, 0, 4, 8, 9)}},
		{"units of two sizes", true, [][]event{hold(two, 1, 0, 1, 5, 6), hold(portion{1, fewPermits}, 2, 0, 2, 5, 6)}},
		{"more than the one states", false, [][]event{hold(three, 1, 0, 1, 5, 6), hold(portion{1, fewPermits}, 2, 0, 2,
			5, 6)}},
		{"more than the other states", false, [][]event{hold(portion{1, fewPermits}, 1, 0, 1, 5, 6),
			hold(three, 2, 0, 2, 5, 6)}},
		{"a writer reads on with others", true, [][]event{
			hold(portion{}, 1, 0, 1, 8, 9, regrade(reader, 1, 3, 5)...), hold(reader, 2, 0, 4, 6, 7),
			hold(portion{}, 3, 0, 10, 11, 12)}},
		{"a reader beside a writer that reads on later", false,
			[][]event{hold(portion{}, 1, 0, 1, 8, 9, regrade(reader, 1, 5, 6)...), hold(reader, 2, 0, 3, 6, 7)}},
		{"a writer beside one that reads on", false,
			[][]event{hold(portion{}, 1, 0, 1, 8, 9, regrade(reader, 1, 3, 4)...), hold(portion{}, 2, 0, 6, 7, 7)}},
		{"a writer that may read on", true,
			[][]event{hold(portion{}, 1, 0, 1, 8, 9, regrade(reader, 1, 3, 5, "unknown")...),
				hold(reader, 2, 0, 4, 6, 7)}},
		{"a writer that was refused to read on", false,
			[][]event{hold(portion{}, 1, 0, 1, 8, 9, regrade(reader, 1, 3, 5, kindCapacity)...),
				hold(reader, 2, 0, 4, 6, 7)}},
		{"the only reader writes", true, [][]event{hold(reader, 1, 0, 1, 9, 9, regrade(portion{}, 3, 6, 7)...),
			hold(reader, 2, 0, 2, 4, 5), hold(reader, 4, 0, 10, 11, 12)}},
		{"one of two readers writes", false, [][]event{hold(reader, 1, 0, 1, 9, 9, regrade(portion{}, 3, 6, 7)...),
			hold(reader, 2, 0, 2, 8, 9)}},
		{"a reader may write, and does not", true,
			[][]event{hold(reader, 1, 0, 1, 9, 9, regrade(portion{}, 1, 6, 7, "unknown")...),
				hold(reader, 2, 0, 2, 8, 9)}},
		{"writes without a token of its own", false,
			[][]event{hold(reader, 1, 0, 1, 9, 9, regrade(portion{}, 2, 6, 7)...), hold(reader, 2, 0, 2, 4, 5)}},
		{"killed, and succeeded", true, [][]event{killed(portion{}, 1, 0, 1), hold(portion{}, 2, 0, 31, 32, 33)}},
		{"killed, and succeeded while it was seen to live", false, [][]event{
			killed(portion{}, 1, 0, 1, event{What: evEnding, Live: at(20)}), hold(portion{}, 2, 0, 11, 12, 13)}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var actors []*process
			for i, told := range c.holds {
				for j := range told {
					told[j].Op, told[j].Name = i+1, "name"
				}
				p := &process{label: fmt.Sprint("actor ", i), events: told}
				if !slices.ContainsFunc(told, func(e event) bool { return e.What == evUnlocked }) {
					p.killed = span{at(25), at(26)}
				}
				actors = append(actors, p)
			}
			for checker, found := range map[string][]string{"sweeps": overlaps(holdsOf(actors...)),
				"search": impossible(actors, patience)} {
				if right := len(found) == 0; right != c.right {
					t.Errorf("%s: found %q", checker, found)
				}
			}
		})
	}
}
