package election

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestALighterLeaderResignsToTheHeaviestCandidateAlive(t *testing.T) {
	each(t, func(w world) {
		ttl := dblock.WithTTL(dbtest.Scale(2 * time.Second)) // a leader looks at the queue a few times in each TTL
		lead, next, other := w.party(ttl), w.party(), w.party()
		first := lead.run(w, false)
		one := first.leads()
		second := next.run(w, false)
		w.queued(next, 1)
		heaviest := other.run(w, false, election.Weight(3), election.Metadata(map[string]string{"zone": "a"}))
		receive(w, one.Preferred())
		assert.NoError(w, one.ctx.Err(), "the lighter one leads on")
		one.Resign()
		two := heaviest.leads() // and not the second, which was granted the lock before
		heaviest.stop()
		assert.NoError(w, heaviest.ended())
		var recorded []int64
		for e, err := range inspect.New(next.client).Events(w.Context(), inspect.EventFilter{Name: name}) {
			require.NoError(w, err)
			if e.Kind == "elected" {
				recorded = append(recorded, e.Token)
			}
		}
		if len(recorded) < 2 || recorded[0] != one.Token() || recorded[1] != two.Token() {
			w.Errorf("recorded are %d, and %d and %d led", recorded, one.Token(), two.Token())
		}
		select {
		case <-first.terms:
		case <-second.terms:
		case <-time.After(patience):
			w.Error("nobody leads after the heaviest")
		}
	})
}
