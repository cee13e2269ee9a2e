package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a loss that a list of known claims shows: the token of the hold may have changed since
// the claim was written down.
func TestOnlyAListOfAllClaimsShowsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		c := newPaperClient(t, p, nil)
		l := acquire(t, t.Context(), c, "n")
		s := c.sessions.Last()
		var asked [][]driver.Claim
		list := func(ctx context.Context, known []driver.Claim) ([]driver.Claim, error) {
			if asked = append(asked, known); known != nil {
				return nil, nil
			}
			return p.link.Claims(ctx, s.ID, driver.All)
		}
		require.NoError(t, keeper{c}.Reconcile(t.Context(), s.Session, list))
		all, err := p.link.Claims(t.Context(), s.ID, driver.All)
		if err != nil || len(asked) != 2 || !slices.Equal(asked[0], all) || asked[1] != nil {
			t.Errorf("the claims of %+v were listed, want of %+v and then of all", asked, all)
		}
		assert.NoError(t, l.Context().Err(), "the lock is lost")
	})
}

// Broken by a list of all claims for each hold that has ended since the known ones were written
// down: a client whose holds are short would read the rows of all names with each heartbeat.
func TestAHoldThatHasEndedMeanwhileIsNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPaperClient(t, newPaper(), nil)
		l := acquire(t, t.Context(), c, "n")
		lists := 0
		list := func(context.Context, []driver.Claim) ([]driver.Claim, error) {
			if lists++; lists == 1 {
				require.NoError(t, l.Unlock(t.Context()))
			}
			return nil, nil
		}
		require.NoError(t, keeper{c}.Reconcile(t.Context(), c.sessions.Last().Session, list))
		assert.Equal(t, lists, 1, "the claims were listed")
	})
}

// ending is a database that records how sessions end.
type ending struct {
	*paper
	empties []bool
	lists   int
}

func (e *ending) EndSession(ctx context.Context, session string, empty bool) error {
	e.empties = append(e.empties, empty)
	return e.paper.EndSession(ctx, session, empty)
}

func (e *ending) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	e.lists++
	return e.paper.Claims(ctx, session, limit)
}

// Broken by the end of a session as of an empty one, although it may have locks: after a statement
// with an unknown outcome, and after the loss of its locks. These would be left to the reaper.
func TestASessionIsEmptyUnlessItMayHaveLocks(t *testing.T) {
	for name, row := range map[string]struct {
		before func(t *testing.T, e *ending, c *Client, l *Lock)
		want   []bool
		lists  int
	}{
		"sure": {
			func(t *testing.T, _ *ending, _ *Client, l *Lock) { require.NoError(t, l.Unlock(t.Context())) },
			[]bool{true}, 0,
		},
		"in doubt": {
			func(t *testing.T, _ *ending, c *Client, l *Lock) {
				require.NoError(t, l.Unlock(t.Context()))
				r := protocol.Request{Name: "n", Attempt: "attempt"}
				late := c.ledger.Request(c.sessions.Last(), &r, ledger.Owner{})
				require.NoError(t, c.store.Begin())
				c.ledger.Abandon(late.Grant, store.Unsure)
				c.store.Done()
				synctest.Wait()
			},
			[]bool{false, true}, 1,
		},
		"lost with a lock": {
			func(_ *testing.T, e *ending, _ *Client, l *Lock) {
				e.leave()
				<-l.Context().Done()
				e.comeBack()
			},
			[]bool{false, false, true}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &ending{paper: newPaper()}
				c := newPaperClient(t, e, nil)
				row.before(t, e, c, acquire(t, t.Context(), c, "n"))
				require.NoError(t, c.Close(t.Context()))
				if !slices.Equal(e.empties, row.want) || e.lists != row.lists {
					t.Errorf("EndSession with %v, and %d lists; want %v and %d",
						e.empties, e.lists, row.want, row.lists)
				}
			})
		})
	}
}
