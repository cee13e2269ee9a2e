package suite

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/oracle"
)

var likeProtocol = inPlaces(own{
	{"random requests have the answers, and leave the rows, that the protocol says", sameAsProtocol},
})

// sameAsProtocol has a fixed seed, so that a failure comes again. Each listener has two
// connections, with that of the heartbeats.
func sameAsProtocol(t *testing.T, e *env) {
	for _, attended := range []bool{false, true} {
		a := e.app(t, 32)
		if attended {
			t.Cleanup(a.Backend.Attend("", time.Minute))
		}
		var engine oracle.Engine = a.Backend
		if e.wiring.reserves() {
			engine = oracle.WakesOnly{Backend: a.Backend}
		}
		steps := 100 // engines of this module have a test of their own with more
		if unabridged() {
			steps = 400
		}
		oracle.Compare(t, engine, 20, steps)
	}
}
