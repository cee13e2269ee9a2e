package client

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a cohort that counts as the holder after it has been released or lost: requests would
// join the queue, and not take the name though it is free.
func TestANameIsNotBusyOnceItsCohortIsGone(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, l *Lock){
		"unlocked": func(t *testing.T, l *Lock) { assert.NoError(t, l.Unlock(t.Context())) },
		"lost": func(_ *testing.T, l *Lock) {
			l.client.ledger.Lose(context.Background(), ledger.ErrDisowned, l.claim)
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newPaperClient(t, newPaper(), nil)
				first := acquire(t, t.Context(), c, "n")
				locks := make(chan *Lock, 2)
				for range 2 {
					go func() { locks <- acquire(t, t.Context(), c, "n") }()
					synctest.Wait()
				}
				require.NoError(t, first.Unlock(t.Context()))
				s := c.sessions.Alive()
				for range 2 {
					l := <-locks
					if !c.ledger.Busy(s, "n") {
						t.Error("a cohort has the name, and it is not busy")
					}
					end(t, l)
				}
				synctest.Wait()
				if c.ledger.Busy(s, "n") {
					t.Error("the name is busy, and nobody has it")
				}
			})
		})
	}
}
