package election

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The former process is one that hangs: it neither renews its term nor stands again.
func TestALeaderThatWasRestartedTakesItsLockOverAtOnce(t *testing.T) {
	each(t, func(w world) {
		me, other := election.Owner("pod-0", "indexer"), election.Owner("pod-1", "indexer")
		former, restarted, rival := w.party(), w.party(), w.party()
		one := former.run(w, true, me).leads()
		waiting := rival.run(w, false, other)
		w.queued(rival, 1)
		second := restarted.run(w, true, me)
		two := second.leads() // the TTL is not over, and the rival is first in the queue
		if two.Token() <= one.Token() {
			w.Errorf("token %d after %d", two.Token(), one.Token())
		}
		tx, err := former.pool.BeginTx(w.Context(), nil)
		require.NoError(w, err)
		err = former.client.Guard(w.Context(), tx, one.Lock())
		_ = tx.Rollback()
		assert.ErrorIs(w, err, dblock.ErrLost, "the former process")
		info, err := inspect.New(rival.client).Lock(w.Context(), name)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Host != "pod-0" ||
			info.Holders[0].Token != two.Token() {
			w.Errorf("%+v, %v", info, err)
		}
		second.stop()
		two.finish <- nil
		assert.NoError(w, second.ended())
		waiting.leads()
	})
}

// Broken by a second campaign that enters the lock of the first: both would lead.
func TestASecondCampaignOfAnOwnerInOneClientIsRefused(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		me := election.Owner("pod-0", "indexer")
		first := p.run(w, false, me)
		e := first.leads()
		for what, candidate := range map[string]party{"": p,
			" of other Elections": {Elections: election.New(p.client)}} {
			assert.ErrorIs(w, candidate.run(w, false, me).ended(), dblock.ErrInvalidOption, "a second campaign", what)
		}
		if e.ctx.Err() != nil {
			w.Errorf("the first has lost: %v", context.Cause(e.ctx))
		}
		assert.ErrorIs(w, p.run(w, false, election.Owner("", "indexer")).ended(), dblock.ErrInvalidOption,
			"without a host")
		e.Resign()
		first.leads() // it stands again
	})
}
