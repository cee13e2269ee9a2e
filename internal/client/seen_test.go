package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// hesitant is a database that is away for as long as a request to join a queue waits.
type hesitant struct{ *paper }

func (h hesitant) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if _, joins := ops[0].(protocol.Join); !joins {
		return h.paper.Run(ctx, ops...)
	}
	<-ctx.Done()
	return nil, driver.Fail(driver.ErrUnavailable, context.Cause(ctx))
}

// The error is one of a database that is away only where nobody was seen to hold the name.
func TestAWaitThatEndsBeforeItIsInTheQueueHasSeenTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, want := newPaper(), Want{Request: protocol.Request{Name: "n"}}
		holder := newPaperClient(t, p, nil)
		require.NoError(t, require.ErrOf(holder.Acquire(t.Context(), &want, true)))
		waiter := newPaperClient(t, hesitant{p}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, assert.ErrOf(waiter.Acquire(ctx, &want, true)), ErrNotAcquired)
	})
}
