package client

import (
	"os"
	"regexp"
	"testing"
)

// all are the states and the events, by the names that the diagram has for the states.
var (
	diagramStates = map[string]State{
		"Requested": Requested, "Held": Held, "Converting": Converting, "Sharing": Sharing, "Uncertain": Uncertain, "MaybeShared": MaybeShared,
		"Lent": Lent, "Releasing": Releasing, "Unanswered": Unanswered, "Undoing": Undoing, "Overdue": Overdue, "Departed": Departed, "Gone": Gone,
	}
	diagramLine = regexp.MustCompile(`(?m)^//\t    (\w+) --> (\w+): (\w+)$`)
)

// The diagram in the package comment has every transition, and no other.
func TestEveryTransitionIsInTheDiagram(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[State]map[string]State{}
	for _, m := range diagramLine.FindAllStringSubmatch(string(text), -1) {
		from, known := diagramStates[m[1]]
		to, alsoKnown := diagramStates[m[2]]
		if !known || !alsoKnown {
			t.Fatalf("no such state: %s", m[0])
		}
		if drawn[from] == nil {
			drawn[from] = map[string]State{}
		}
		drawn[from][m[3]] = to
	}
	if len(diagramStates) != len(stateNames) {
		t.Fatalf("%d states, and the diagram has %d", len(stateNames), len(diagramStates))
	}
	for from := range State(len(stateNames)) {
		for e := range event(len(eventNames)) {
			to, possible := from.after(e)
			want, inDiagram := drawn[from][e.String()]
			if possible != inDiagram || possible && to != want {
				t.Errorf("%v at %v: %v %v, in the diagram %v %v", from, e, to, possible, want, inDiagram)
			}
			delete(drawn[from], e.String())
		}
		for e := range drawn[from] {
			t.Errorf("%v: the diagram has %q, which is no event", from, e)
		}
	}
}

func TestMoveKeepsTheRegistry(t *testing.T) {
	for from := range State(len(stateNames)) {
		for e := range event(len(eventNames)) {
			r := newRegistry()
			c := r.request("n", "a")
			if c.state = from; from == Gone {
				delete(r.claims, "a")
			}
			to, possible := from.after(e)
			if moved := r.transition(c, e); moved != possible {
				t.Errorf("%v at %v: moved %v", from, e, moved)
			}
			if !possible {
				to = from
			}
			if c.state != to || r.claimed("a") != (to != Gone) {
				t.Errorf("%v at %v: %v, registered %v", from, e, c.state, r.claimed("a"))
			}
		}
	}
}

// What the rest of the package asks of a state.
func TestWhatAStateMeans(t *testing.T) {
	for s := range State(len(stateNames)) {
		for what, test := range map[string]struct {
			is   bool
			when []State
		}{
			"vague":      {s.vague(), []State{Uncertain, MaybeShared}},
			"yielding":   {s.yielding(), []State{Sharing, MaybeShared}},
			"unanswered": {s.unanswered(), []State{Unanswered, Undoing, Gone}},
		} {
			want := false
			for _, w := range test.when {
				want = want || w == s
			}
			if test.is != want {
				t.Errorf("%v: %s is %v", s, what, test.is)
			}
		}
	}
}
