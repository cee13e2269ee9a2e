package client

import (
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// all are the states and the events, by the names that the diagram has for the states.
var (
	diagramStates = map[string]State{
		"Requested": Requested, "Held": Held, "Lent": Lent, "Releasing": Releasing,
		"Undoing": Undoing, "Overdue": Overdue, "ReleasingTx": ReleasingTx, "ReleasedTx": ReleasedTx, "Settling": Settling, "Gone": Gone,
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
			impossible := false
			r := newRegistry(testlog.New(io.Discard, func(...any) { impossible = true }))
			c := r.request("n", "a")
			if c.state = from; from == Gone {
				delete(r.attempts, "a")
			}
			to, possible := from.after(e)
			if r.transition(c, e); impossible == possible {
				t.Errorf("%v at %v: logged as impossible: %v", from, e, impossible)
			}
			if !possible {
				to = from
			}
			if c.state != to || r.knows("a") != (to != Gone) {
				t.Errorf("%v at %v: %v, registered %v", from, e, c.state, r.knows("a"))
			}
		}
	}
}
