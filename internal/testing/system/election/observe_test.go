package election

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
	"github.com/dblock-go/dblock/sqlite"
)

func TestObserversHearOfEveryChangeAtOnce(t *testing.T) {
	each(t, func(w world) {
		a, b := w.party(dblock.WithHost("north")), w.party(dblock.WithHost("south"))
		seen := w.observe(w.observer())
		if l := receive(w, seen); l.Token != 0 {
			w.Fatalf("at first %+v", l)
		}
		first := a.run(w, false, election.Metadata(map[string]string{"address": "10.0.0.1"}))
		one := first.leads()
		l := receive(w, seen)
		if l.Token != one.Token() || l.Host != "north" || l.Metadata["address"] != "10.0.0.1" || l.Since.IsZero() ||
			l.Thread == "" {
			w.Errorf("%+v", l)
		}
		second := b.run(w, false)
		w.queued(b, 1)
		one.Resign()
		two := second.leads()
		if l = receive(w, seen); l.Token == 0 { // seen in between
			l = receive(w, seen)
		}
		if l.Token != two.Token() || l.Host != "south" || len(l.Metadata) != 0 {
			w.Errorf("%+v", l)
		}
		w.queued(b, 1)
		first.stop()
		assert.NoError(w, first.ended())
	})
}

func TestAResignationThatNobodySucceedsIsSeen(t *testing.T) {
	each(t, func(w world) {
		c := w.party().run(w, false)
		c.leads()
		seen := w.observe(w.observer())
		if l := receive(w, seen); l.Token == 0 {
			w.Errorf("at first %+v", l)
		}
		c.stop()
		if l := receive(w, seen); l.Token != 0 {
			w.Errorf("%+v", l)
		}
	})
}

func TestAnObserverWhoWasBusyMissesNoTerm(t *testing.T) {
	one(t, func(w world) {
		p, observer := w.party(), w.party()
		var want, got []int64
		c := p.run(w, true)
		for l, err := range observer.Observe(w.Context(), name) {
			require.NoError(w, err)
			if l.Token != 0 {
				got = append(got, l.Token)
			}
			if len(want) == 0 {
				for range 5 { // each one begins later after the one before, which was brief
					e := c.leads()
					want = append(want, e.Token())
					e.finish <- nil
				}
				want = append(want, c.leads().Token())
			}
			if l.Token == want[len(want)-1] {
				break
			}
		}
		if len(want)-len(got) > 1 || got[len(got)-1] != want[len(want)-1] {
			w.Errorf("saw %v of %v", got, want)
		}
		for i, token := range got[1:] {
			if token != want[len(want)-len(got)+1+i] {
				w.Errorf("saw %v of %v", got, want)
			}
		}
		c.stop()
	})
}

func TestTheFirstValueIsThePresentState(t *testing.T) {
	each(t, func(w world) {
		p, observer := w.party(), w.party()
		c := p.run(w, false)
		c.leads().Resign()
		e := c.leads()
		if l := receive(w, w.observe(observer)); l.Token != e.Token() {
			w.Errorf("%+v, not %d", l, e.Token())
		}
		c.stop()
		require.NoError(w, c.ended())
		if l := receive(w, w.observe(observer)); l.Token != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// A leader leads for longer than the history is kept. If its election were deleted, a new observer
// would see no leader.
func TestATermThatOutlivesTheHistoryIsSeen(t *testing.T) {
	one(t, func(w world) {
		p, observer := w.party(), w.party()
		c := p.run(w, false)
		c.leads().Resign()
		e := c.leads()
		<-time.After(100 * time.Millisecond)
		report, err := reaper.Sweep(w.Context(), sqlite.New(observer.pool), reaper.History(50*time.Millisecond))
		if err != nil || report.Deleted != 2 {
			w.Errorf("%v, %v: want the first term deleted, and nothing else", report, err)
		}
		if l := receive(w, w.observe(observer)); l.Token != e.Token() {
			w.Errorf("%+v, not %d", l, e.Token())
		}
	})
}

// A holder of the name that is no candidate keeps all candidates from leading.
func TestWhoOnlyLocksTheNameDoesNotLead(t *testing.T) {
	one(t, func(w world) {
		p, other := w.party(), w.party()
		lock, err := other.client.Lock(w.Context(), name)
		require.NoError(w, err)
		seen := w.observe(other)
		if l := receive(w, seen); l.Token != 0 {
			w.Errorf("%+v", l)
		}
		c := p.run(w, false)
		w.queued(p, 1)
		<-time.After(1500 * time.Millisecond)
		require.NoError(w, lock.Unlock(w.Context()))
		e := c.leads()
		if l := receive(w, seen); l.Token != e.Token() {
			w.Errorf("%+v, not %d", l, e.Token())
		}
	})
}

func TestACrashIsSeen(t *testing.T) {
	one(t, func(w world) {
		p, observer := w.party(dblock.WithTTL(time.Second)), w.party(dblock.WithTTL(time.Second))
		c := p.run(w, false)
		e := c.leads()
		seen := w.observe(observer)
		receive(w, seen)
		p.goAway(dblock.ErrUnavailable)
		if l := receive(w, seen); l.Token != 0 {
			w.Errorf("%+v", l)
		}
		assert.Error(w, e.ctx.Err(), "the leader does not know yet")
	})
}

func TestAnObservationSurvivesADatabaseThatIsAway(t *testing.T) {
	one(t, func(w world) {
		p, observer := w.party(), w.party(dblock.WithTTL(time.Second))
		seen := w.observe(observer)
		receive(w, seen)
		observer.goAway(dblock.ErrUnavailable)
		c := p.run(w, false)
		one := c.leads()
		<-time.After(1200 * time.Millisecond) // its session dies
		one.Resign()
		two := c.leads()
		observer.comeBack()
		if l := receive(w, seen); l.Token != one.Token() {
			w.Errorf("%+v, not %d", l, one.Token())
		}
		for l := receive(w, seen); l.Token != two.Token(); l = receive(w, seen) {
			if l.Token != 0 {
				w.Errorf("%+v, not %d", l, two.Token())
			}
		}
	})
}

// After a failover that lost the latest commits, events may have numbers again that were read
// before.
func TestEventsThatAreCountedAnewAreFound(t *testing.T) {
	one(t, func(w world) {
		p, observer := w.party(), w.party()
		seen := w.observe(observer)
		receive(w, seen)
		c := p.run(w, false)
		for range 3 { // each is brief, and followed by a longer pause
			c.leads().finish <- nil
		}
		last := c.leads()
		for l := receive(w, seen); l.Token != last.Token(); l = receive(w, seen) {
		}
		db := w.db.SQL(w)
		for _, statement := range []string{"DELETE FROM dblock_events",
			"UPDATE sqlite_sequence SET seq = 0 WHERE name = 'dblock_events'"} {
			require.NoError(w, require.ErrOf(db.ExecContext(w.Context(), statement)))
		}
		require.NoError(w, require.ErrOf(p.client.Break(w.Context(), name, "test")))
		e := c.leads()
		for l := receive(w, seen); l.Token != e.Token(); l = receive(w, seen) {
			if l.Token != 0 {
				w.Errorf("%+v, not %d", l, e.Token())
			}
		}
	})
}

func TestAnObserverMayStopAtAnyTime(t *testing.T) {
	one(t, func(w world) {
		p := w.party()
		for range p.Observe(w.Context(), name) {
			break
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var last error
		for _, err := range p.Observe(ctx, name) {
			cancel()
			last = err
		}
		assert.ErrorIs(w, last, context.Canceled, "at last")
		//lint:ignore SA1012 that is the test
		for _, err := range p.Observe(nil, name) {
			assert.ErrorIs(w, err, dblock.ErrInvalidOption)
		}
	})
}

func TestCloseEndsAnObservation(t *testing.T) {
	one(t, func(w world) {
		for range 20 {
			p := w.party()
			begun, last := make(chan bool), make(chan error, 1)
			go func() {
				for l, err := range p.Observe(w.Context(), name) {
					if err != nil {
						last <- err
						return
					}
					begun <- l.Token == 0
				}
			}()
			receive(w, begun)
			assert.NoError(w, p.client.Close(w.Context()))
			assert.ErrorIs(w, receive(w, last), dblock.ErrClosed, "at last")
		}
	})
}
