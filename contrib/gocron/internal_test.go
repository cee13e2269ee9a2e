package gocronlock

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestATermThatIsOverCountsBeforeTheCampaignHasReturned(t *testing.T) {
	ctx, over := context.WithCancel(t.Context())
	e := &Elector{term: &term{ctx: ctx}}
	assert.NoError(t, e.IsLeader(ctx))
	over()
	assert.ErrorIs(t, e.IsLeader(t.Context()), election.ErrNotLeader, "IsLeader")
	if e.join() != nil {
		t.Error("a task has joined")
	}
}
