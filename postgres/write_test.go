package postgres

import (
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// A grant that a crash takes back would be granted again, while its holder believes in it.
func TestOnlyWhatACrashMayTakeBackIsLazy(t *testing.T) {
	held := protocol.Row{Name: "n", Session: "a", Attempt: "a1", First: 3, Last: 5, Token: 5, Ends: 100, Waiters: 1,
		Head: 1, Next: 2}
	for what, c := range map[string]struct {
		change func(n *protocol.Name)
		lazy   bool
	}{
		"nothing":            {func(*protocol.Name) {}, true},
		"a release":          {func(n *protocol.Name) { n.Session, n.Attempt, n.Ends = "", "", 0 }, true},
		"a place":            {func(n *protocol.Name) { n.Waiters, n.PutPlaces = 2, make([]protocol.Place, 1) }, true},
		"a place that left":  {func(n *protocol.Name) { n.Waiters, n.GonePlaces = 0, make([]protocol.Place, 1) }, true},
		"a grant":            {func(n *protocol.Name) { n.First, n.Last, n.Token = 9, 9, 9 }, false},
		"a share":            {func(n *protocol.Name) { n.Session, n.Token, n.Units = "", 9, 1 }, false},
		"what a share is":    {func(n *protocol.Name) { n.PutShares = make([]protocol.Share, 1) }, false},
		"a lock that moves":  {func(n *protocol.Name) { n.Session = "b" }, false},
		"a detached member":  {func(n *protocol.Name) { n.First, n.Last = 4, 4 }, false},
		"the end of a lease": {func(n *protocol.Name) { n.Ends = 200 }, false},
		"an event":           {func(n *protocol.Name) { n.Events = make([]protocol.Event, 1) }, false},
	} {
		n := protocol.Open(held, 1, nil)
		c.change(n)
		if lazy := reversible(held, n); lazy != c.lazy {
			t.Errorf("%s: %v, want %v", what, lazy, c.lazy)
		}
	}
}
