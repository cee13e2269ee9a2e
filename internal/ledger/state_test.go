package ledger

import (
	"io"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/diagram"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// diagramNames are the names of the states in the diagram.
var diagramNames = [...]string{
	"Requested", "Held", "Lent", "Releasing", "Undoing", "Overdue", "ReleasingTx", "AwaitingTx", "ReleasedTx",
	"Overtaking", "Settling", "Gone",
}

// The diagram in the package comment has every transition, and no other.
func TestEveryTransitionIsInTheDiagram(t *testing.T) {
	if len(diagramNames) != len(stateNames) {
		t.Fatalf("%d states, and the diagram has %d", len(stateNames), len(diagramNames))
	}
	diagram.Compare(t, transitions, func(s State) string { return diagramNames[s] })
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
