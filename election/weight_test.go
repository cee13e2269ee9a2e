package election

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// ballot has candidates of one election, each in a process of its own, in a bubble.
type ballot struct {
	*testing.T
	*dblocktest.Fake[*sql.Tx]
	terms chan standing // those that have begun
}

// standing is a candidate that leads.
type standing struct {
	*Term
	name string
	stop func() // ends its campaign
}

func inBallot(t *testing.T, f func(b ballot)) {
	synctest.Test(t, func(t *testing.T) {
		f(ballot{t, dblocktest.New[*sql.Tx](t), make(chan standing, 100)})
	})
}

// stand begins a campaign, and returns when it leads or is in the queue.
func (b ballot) stand(name string, options ...Option) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	elections := New(b.Another(b).Client)
	ended := make(chan struct{})
	stop = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		assert.NoError(b, elections.Campaign(ctx, "n", func(ctx context.Context, t *Term) error {
			b.terms <- standing{t, name, stop}
			<-ctx.Done()
			return nil
		}, options...), name)
	}()
	synctest.Wait()
	b.Cleanup(stop)
	return stop
}

// leads returns the only term that has begun since the last call.
func (b ballot) leads(name string) standing {
	b.Helper()
	synctest.Wait()
	if len(b.terms) != 1 {
		b.Fatalf("%d terms have begun, want one of %s", len(b.terms), name)
	}
	s := <-b.terms
	assert.Equal(b, s.name, name, "the leader is")
	return s
}

func (b ballot) queue() int {
	info, err := inspect.New(b.Client).Lock(b.Context(), "n")
	assert.NoError(b, err)
	return len(info.Waiters)
}

// Broken by a lighter candidate that leads when it is granted the lock, and by one whose term is
// recorded although it does not lead.
func TestOfThoseThatWaitTheHeaviestLeadsNextAndOfEqualOnesTheFirst(t *testing.T) {
	inBallot(t, func(b ballot) {
		b.stand("a")
		want := []int64{b.leads("a").Token()}
		b.stand("b")
		b.stand("c", Weight(2))
		b.stand("d", Weight(5), Metadata(map[string]string{"address": "d"}))
		b.stand("e", Weight(1))
		b.stand("f", Weight(5))
		if now := b.queue(); now != 5 || len(b.terms) != 0 {
			b.Fatalf("%d wait, and %d have led meanwhile", now, len(b.terms))
		}
		b.LoseName(t, "n") // the loser stands again, behind the others
		for _, name := range []string{"d", "f", "c"} {
			s := b.leads(name)
			want = append(want, s.Token())
			s.stop()
		}
		for range 3 { // those with the default weight
			synctest.Wait()
			s := <-b.terms
			want = append(want, s.Token())
			s.stop()
		}
		var recorded []int64
		terms := inspect.EventFilter{Name: "n", Kinds: []string{elected}}
		for e, err := range inspect.New(b.Client).Events(b.Context(), terms) {
			assert.NoError(b, err)
			recorded = append(recorded, e.Token)
			if e.Metadata["address"] == "d" {
				assert.Equal(b, e.Metadata["weight"], "5", "the weight in the history")
			}
		}
		if !slices.Equal(recorded, want) {
			b.Errorf("recorded are %d, and these led: %d", recorded, want)
		}
	})
}

// Broken by equal candidates that yield to each other.
func TestALeaderIsNotifiedOfAHeavierCandidateOnly(t *testing.T) {
	inBallot(t, func(b ballot) {
		b.stand("lighter", Weight(2))
		lighter := b.leads("lighter")
		preferred := lighter.Preferred()
		b.stand("equal", Weight(2))
		leave := b.Queue(b, "n", dblock.Metadata(map[string]string{"weight": "no number"})) // another program's
		b.Advance(b.Client.TTL())
		select {
		case <-preferred:
			b.Fatal("an equal candidate is preferred")
		default:
		}
		b.stand("heavier", Weight(3))
		b.Advance(b.Client.TTL() / 3)
		select {
		case <-preferred:
		default:
			b.Error("a heavier candidate was not noticed")
		}
		assert.NoError(b, lighter.lock.Context().Err(), "the lighter leads on")
		leave()
		lighter.Resign()
		heavier := b.leads("heavier")
		<-lighter.Preferred() // of a term that is over
		heavier.stop()
		synctest.Wait()
		if len(b.terms) != 1 {
			b.Errorf("%d lead after the heavier one", len(b.terms))
		}
	})
}

func TestACandidateOfWeight0StandsByAndNeverLeads(t *testing.T) {
	inBallot(t, func(b ballot) {
		stop := b.stand("reserve", Weight(0))
		b.Advance(b.Client.TTL())
		if n := b.queue() + len(b.terms); n != 0 {
			b.Errorf("it waits, or leads: %d", n)
		}
		b.stand("other")
		b.leads("other").stop()
		stop()
		if len(b.terms) != 0 {
			b.Error("it led")
		}
	})
}

func TestAWeightThatCannotBe(t *testing.T) {
	e := New(dblocktest.New[*sql.Tx](t).Client)
	for _, o := range []Option{Weight(-1), Metadata(map[string]string{"weight": "2"})} {
		err := e.Campaign(t.Context(), "n", func(context.Context, *Term) error { return nil }, o)
		assert.ErrorIs(t, err, dblock.ErrInvalidOption)
	}
}
