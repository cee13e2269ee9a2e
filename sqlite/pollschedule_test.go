package sqlite

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// watchman is a pollSchedule with a clock that the test sets.
type watchman struct {
	*pollSchedule
	t   *testing.T
	now time.Time
}

func newWatchman(t *testing.T, inbox bool, first sighting) *watchman {
	now := time.Unix(1_700_000_000, 0)
	return &watchman{newPollSchedule(first, inbox, now), t, now}
}

// looksAfter checks when the next look is due, lets it be that time, and looks.
func (w *watchman) looksAfter(want time.Duration, s sighting, missed bool) {
	w.t.Helper()
	require.Equal(w.t, w.due().Sub(w.now), want, "it looks after")
	w.now = w.now.Add(max(0, want))
	w.looks()
	require.Equal(w.t, w.saw(s, w.now), missed, "missed")
}

func TestAListenerWithoutABoxPollsWhileItsSessionWaits(t *testing.T) {
	w := newWatchman(t, false, sighting{waiting: true})
	for range 100 {
		w.looksAfter(lookInterval, sighting{waiting: true}, false)
	}
	w.looksAfter(lookInterval, sighting{number: 1, waiting: true}, true)
	w.looksAfter(lookAgain, sighting{number: 1, waiting: true}, false)
	w.looksAfter(2*lookAgain, sighting{number: 1, holding: true}, false)
	w.looksAfter(4*lookAgain, sighting{number: 1, holding: true}, false)
	w.looksAfter(8*lookAgain, sighting{number: 1, holding: true}, false)
	w.looksAfter(holdInterval, sighting{number: 1}, false)
	w.looksAfter(restInterval, sighting{number: 1}, false)
	w.woken()
	w.looksAfter(lookInterval, sighting{number: 1, waiting: true}, false)
}

func TestAListenerWithABoxLooksForWhatDidNotCome(t *testing.T) {
	idle := sighting{waiting: true}
	w := newWatchman(t, true, idle)
	w.looksAfter(safetyInterval, idle, false)
	w.woken()
	w.looksAfter(safetyInterval, idle, false)

	w.opened(w.now) // others may have found the inbox full
	w.notify(1)
	w.now = w.now.Add(fullDelay / 2)
	w.opened(w.now) // as long as letters come it looks at the same rate
	w.notify(2)
	idle.number = 2
	w.looksAfter(fullDelay/2, idle, false)
	w.looksAfter(safetyInterval, idle, false)

	idle.number = 3 // a notice that comes later than the look
	w.looksAfter(safetyInterval, idle, true)
	w.notify(3)
	w.looksAfter(lateness, idle, false)
	w.looksAfter(safetyInterval, idle, false)

	idle.number = 4 // one that does not come
	w.looksAfter(safetyInterval, idle, true)
	w.looksAfter(lateness, idle, false)
	for until := w.now.Add(distrust); w.now.Before(until); {
		w.looksAfter(w.pause, idle, false)
		if w.pause > lookInterval {
			t.Fatalf("it polls every %v", w.pause)
		}
	}
	w.looksAfter(safetyInterval, idle, false)
}

// What the look has shown may be from before the letter, or from before those that found the inbox
// full.
func TestALetterThatComesDuringALookIsFollowedByAnother(t *testing.T) {
	idle := sighting{waiting: true}
	w := newWatchman(t, true, idle)
	w.opened(w.now)
	w.looks()
	w.opened(w.now)
	w.saw(idle, w.now)
	w.looksAfter(fullDelay, idle, false)
	w.looksAfter(safetyInterval, idle, false)
}

func TestAListenerLooksForTheCommitOfATransaction(t *testing.T) {
	idle := sighting{number: 6, waiting: true}
	w := newWatchman(t, true, idle)
	w.now = w.now.Add(lookInterval)
	w.expect(7, w.now)
	w.expect(8, w.now)
	w.looksAfter(0, idle, false)
	began := w.now
	for w.now.Sub(began) < time.Minute {
		want := max(lookInterval, w.now.Sub(began)/patienceRatio)
		w.looksAfter(min(want, safetyInterval), idle, false)
	}
	w.expect(6, w.now) // of one that was seen already
	idle.number = 8
	w.looksAfter(safetyInterval, idle, true)
	w.looksAfter(safetyInterval, idle, false) // nothing is owed
}

func TestAGrantThatWasRungIsNotHeardAgain(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(t *tally) bool
		want bool
	}{
		{"none was made", func(t *tally) bool { return t.missed(7) }, false},
		{"one was not rung", func(t *tally) bool { return t.missed(8) }, true},
		{"one was told", func(t *tally) bool { t.notify(8); return t.missed(8) }, false},
		{"one of two was told", func(t *tally) bool { t.notify(9); return t.missed(9) }, true},
		{"two were told, in any order", func(t *tally) bool { t.notify(9); t.notify(8); return t.missed(9) }, false},
		{"one was told before it was seen", func(t *tally) bool {
			t.notify(8)
			t.notify(9)
			return t.missed(8) || t.missed(9)
		}, false},
		{"one was told after it was seen", func(t *tally) bool { t.missed(8); t.notify(8); return t.missed(9) }, true},
		{"one that is not numbered was told", func(t *tally) bool { t.notify(0); return t.missed(8) }, true},
		{"the session died", func(t *tally) bool { return t.missed(-1) }, true},
		{"one that was announced was committed", func(t *tally) bool {
			t.expected = []int64{8}
			return t.missed(8) && t.owing == 0
		}, true},
		{"another was committed in its place",
			func(t *tally) bool { t.expected = []int64{8}; t.notify(8); return t.missed(8) || t.owing != 0 }, false},
		{"and stays dead", func(t *tally) bool { t.missed(-1); return t.missed(-1) }, false},
	} {
		assert.Equal(t, c.do(&tally{heard: 7}), c.want, c.what, "missed")
	}
}
