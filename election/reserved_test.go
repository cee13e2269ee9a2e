package election

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Goroutines of one client that wait for a name are granted it at once. Until the first of them
// says that it leads, the lock is shown with the token that is reserved for the last. Broken by
// a belief in what was looked at before the term's event: the token seems to be a later term's.
func TestALeaderWithTokensReservedBehindItIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := dblocktest.New[*sql.Tx](t).Client
		first, err := client.Lock(t.Context(), "n")
		require.NoError(t, err)
		locks := make(chan *dblock.Lock, 3)
		ask := func() {
			go func() {
				l, err := client.Lock(context.Background(), "n")
				assert.NoError(t, err)
				locks <- l
			}()
			synctest.Wait()
		}
		ask()
		require.NoError(t, first.Unlock(t.Context()))
		second := <-locks
		for range 3 { // they join the queue together
			ask()
		}
		require.NoError(t, second.Unlock(t.Context()))
		leader := <-locks
		before, err := inspect.New(client).Lock(t.Context(), "n")
		if err != nil || holder(before) <= leader.Token() {
			t.Fatalf("%+v, %v: want a token above %d", before, err, leader.Token())
		}
		require.NoError(t, leader.Record(t.Context(), elected, ""))
		var told []Leader
		o := observer{inspector: inspect.New(client), name: "n", begun: true, yield: func(l Leader) bool {
			told = append(told, l)
			return true
		}}
		if err := o.catchUp(t.Context(), &before); err != nil || len(told) != 1 || told[0].Token != leader.Token() {
			t.Errorf("told of %+v, %v: want token %d alone", told, err, leader.Token())
		}
		assert.NoError(t, leader.Unlock(t.Context()))
		for range 2 {
			assert.NoError(t, (<-locks).Unlock(t.Context()))
		}
	})
}
