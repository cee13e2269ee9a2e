package ledger

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
		"Undoing": Undoing, "Overdue": Overdue, "ReleasingTx": ReleasingTx, "ReleasedTx": ReleasedTx,
		"Settling": Settling, "Gone": Gone,
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
		for e := range Event(len(eventNames)) {
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

func TestMoveKeepsTheTable(t *testing.T) {
	for from := range State(len(stateNames)) {
		for e := range Event(len(eventNames)) {
			impossible := false
			l := New(Config{Log: testlog.New(io.Discard, func(...any) { impossible = true })})
			k := l.Request("n", "a")
			if k.state = from; from == Gone {
				delete(l.attempts, "a")
			}
			to, possible := from.after(e)
			if l.Move(k, e); impossible == possible {
				t.Errorf("%v at %v: logged as impossible: %v", from, e, impossible)
			}
			if !possible {
				to = from
			}
			if k.state != to || l.Knows("a") != (to != Gone) {
				t.Errorf("%v at %v: %v, registered %v", from, e, k.state, l.Knows("a"))
			}
		}
	}
}
