package gocronlock

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/election"
)

func TestATermThatIsOverCountsBeforeTheCampaignHasReturned(t *testing.T) {
	ctx, over := context.WithCancel(t.Context())
	e := &Elector{term: &term{ctx: ctx}}
	if err := e.IsLeader(ctx); err != nil {
		t.Error(err)
	}
	over()
	if err := e.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("IsLeader: %v", err)
	}
	if e.join() != nil {
		t.Error("a task has joined")
	}
}
