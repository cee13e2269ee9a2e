package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestTheNextLeadsWhenTheFunctionHasReturnedAndNotBefore(t *testing.T) {
	each(t, func(w world) {
		a, b := w.party(), w.party()
		first := a.run(w, true)
		one := first.leads()
		second := b.run(w, false)
		w.queued(b, 1)
		first.stop()
		<-one.ctx.Done()
		assert.Equal(w, context.Cause(one.ctx), context.Canceled, "the cause is")
		select {
		case <-second.terms:
			w.Error("the second leads while the first has not returned")
		case <-time.After(100 * time.Millisecond):
		}
		one.finish <- nil
		two := second.leads()
		if two.Token() <= one.Token() {
			w.Errorf("token %d after %d", two.Token(), one.Token())
		}
		assert.NoError(w, first.ended())
	})
}

// Broken by a campaign that ends where its event is not written.
func TestWhoLeadsDoesNotDependOnTheHistory(t *testing.T) {
	each(t, func(w world) {
		p := w.party()
		require.NoError(w, require.ErrOf(w.db.SQL(w).ExecContext(w.Context(), "DROP TABLE dblock_events")))
		c := p.run(w, false)
		one := c.leads()
		one.Resign()
		one.finish <- nil
		two := c.leads()
		if two.Token() <= one.Token() {
			w.Errorf("token %d after %d", two.Token(), one.Token())
		}
		c.stop()
		two.finish <- nil
		assert.NoError(w, c.ended())
	})
}

func TestWhoResignsGoesToTheEndOfTheQueue(t *testing.T) {
	each(t, func(w world) {
		parties := []party{w.party(), w.party(), w.party()}
		var candidates []candidate
		for i, p := range parties {
			candidates = append(candidates, p.run(w, false))
			w.queued(p, max(0, i))
			if i == 0 {
				one := candidates[0].leads()
				candidates[0].terms <- one
			}
		}
		var token int64
		for i := range 7 {
			p := parties[i%3]
			e := candidates[i%3].leads()
			if e.Token() <= token {
				w.Errorf("token %d after %d", e.Token(), token)
			}
			token = e.Token()
			w.queued(p, 2)
			switch i % 3 {
			case 0:
				assert.NoError(w, p.Resign(w.Context(), name))
			case 1:
				e.Resign()
			case 2:
				if err := p.Resign(e.ctx, name); err != nil { // it would wait for itself
					w.Error(err)
				}
			}
			<-e.ctx.Done()
			assert.Equal(w, context.Cause(e.ctx), election.ErrResigned, "the cause is")
		}
	})
}

func TestResignWaitsForTheFunctionUntilItsContextEnds(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		assert.ErrorIs(w, p.Resign(w.Context(), name), election.ErrNotLeader)
		c := p.run(w, true)
		e := c.leads()
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer cancel()
		assert.ErrorIs(w, p.Resign(ctx, name), context.DeadlineExceeded)
		e.finish <- nil
		c.leads().finish <- nil // alone it is elected again
		//lint:ignore SA1012 that is the test
		assert.ErrorIs(w, p.Resign(nil, name), dblock.ErrInvalidOption)
	})
}

func TestWhatTheFunctionReturns(t *testing.T) {
	one(t, func(w world) {
		broken := errors.New("broken")
		p := w.party()
		c := p.run(w, true)
		c.leads().finish <- nil // stands again
		e := c.leads()
		e.Resign()
		e.finish <- broken // after the term: stands again
		c.leads().finish <- broken
		assert.Equal(w, c.ended(), broken, "Campaign said")

		for said, want := range map[error]error{nil: nil, context.Canceled: nil, broken: broken} {
			c = p.run(w, true)
			e = c.leads()
			c.stop()
			<-e.ctx.Done()
			e.finish <- said
			if err := c.ended(); !errors.Is(err, want) || (want == nil) != (err == nil) {
				w.Errorf("the function said %v, Campaign %v", said, err)
			}
		}
		if info, err := inspect.New(p.client).Lock(w.Context(), name); err != nil ||
			len(info.Holders)+len(info.Waiters) != 0 {
			w.Errorf("%+v %v", info, err)
		}
	})
}

func TestAPanicPassesThroughAfterTheHandOver(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		func() {
			defer func() { assert.Equal(w, recover(), "boom", "recovered") }()
			_ = p.Campaign(w.Context(), name, func(context.Context, *election.Term) error { panic("boom") })
		}()
		l, err := p.client.TryLock(w.Context(), name)
		require.NoError(w, err)
		_ = l.Unlock(w.Context())
	})
}

func TestALeaderThatIsBrokenStandsAgain(t *testing.T) {
	each(t, func(w world) {
		// a client that never waited hears of it with a heartbeat
		a, b := w.party(dblock.WithTTL(2*time.Second)), w.party()
		first := a.run(w, false)
		one := first.leads()
		require.NoError(w, b.client.Ask(w.Context(), name, "please"))
		assert.Equal(w, receive(w, one.Asked()), "please")
		second := b.run(w, false)
		w.queued(b, 1)
		if n, err := b.client.Break(w.Context(), name, "stuck"); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		<-one.ctx.Done()
		assert.ErrorIs(w, context.Cause(one.ctx), dblock.ErrLost, "the cause is")
		two := second.leads()
		second.stop()
		if three := first.leads(); two.Token() <= one.Token() || three.Token() <= two.Token() {
			w.Error("tokens do not rise: ", one.Token(), two.Token(), three.Token())
		}
	})
}

func TestGuardRefusesWhoLeadsNoMore(t *testing.T) {
	each(t, func(w world) {
		a, b := w.party(), w.party()
		c := a.run(w, true)
		e := c.leads()
		guard := func() error {
			tx, err := a.pool.BeginTx(w.Context(), nil)
			require.NoError(w, err)
			defer tx.Rollback()
			return a.client.Guard(w.Context(), tx, e.Lock())
		}
		assert.NoError(w, guard())
		require.NoError(w, require.ErrOf(b.client.Break(w.Context(), name, "test")))
		assert.ErrorIs(w, guard(), dblock.ErrLost)
		if left := time.Until(e.Until()); left > longTTL {
			w.Error(left)
		}
		e.finish <- nil
	})
}

// Under a lock's context an owner enters what it has: here, both would lead.
func TestTwoCampaignsUnderOneLockAreTwoCandidates(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		err := p.client.Do(w.Context(), "other", func(ctx context.Context, _ *dblock.Lock) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			terms, results := make(chan term, 10), make(chan error, 2)
			for range 2 {
				go func() {
					results <- p.Campaign(ctx, name, func(ctx context.Context, e *election.Term) error {
						terms <- term{Term: e, ctx: ctx}
						<-ctx.Done()
						return nil
					})
				}()
			}
			e := receive(w, terms)
			w.queued(p, 1)
			inner, err := p.client.Lock(e.ctx, name) // the leader itself enters
			if err != nil {
				return err
			}
			if err := inner.Unlock(ctx); err != nil {
				return err
			}
			e.Resign()
			if next := receive(w, terms); next.Token() <= e.Token() || e.ctx.Err() == nil {
				w.Errorf("token %d after %d; that one's context ended with %v", next.Token(), e.Token(), e.ctx.Err())
			}
			cancel()
			return errors.Join(receive(w, results), receive(w, results))
		})
		assert.NoError(w, err)
	})
}

// Broken by a release that is given up when the campaign ends while it is in flight.
func TestACampaignThatEndsDuringAResignationReleasesItsLock(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		c := p.run(w, false)
		e := c.leads()
		p.goAway(errHeldUp)
		e.Resign()
		receive(w, p.heldUp)
		c.stop()
		assert.NoError(w, c.ended())
	})
}

func TestACampaignSurvivesADatabaseThatIsAway(t *testing.T) {
	one(t, func(w world) {
		p := w.party(dblock.WithTTL(time.Second))
		c := p.run(w, false)
		e := c.leads()
		for kind, longer := range map[error]time.Duration{ // than Lock puts up with
			dblock.ErrUnavailable: 1500 * time.Millisecond, dblock.ErrReadOnly: 0,
		} {
			p.goAway(kind)
			<-e.ctx.Done()
			assert.ErrorIs(w, context.Cause(e.ctx), dblock.ErrLost, "the cause is")
			<-time.After(longer + 500*time.Millisecond)
			p.comeBack()
			next := c.leads()
			if next.Token() <= e.Token() {
				w.Errorf("token %d after %d", next.Token(), e.Token())
			}
			e = next
		}
	})
}
