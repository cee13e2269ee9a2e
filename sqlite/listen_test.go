package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// hearing is a listener in a bubble of testing/synctest. The test is its inbox and its database, so
// that time is exact.
type hearing struct {
	t       *testing.T
	session string
	heard   chan string // attempts
	ended   chan error
	letters chan notice
	closed  chan struct{} // its inbox

	mu    sync.Mutex // protects what follows
	shown sighting   // by a look
	looks int
	gone  bool // somebody took the inbox away
}

func (h *hearing) read(heard func(notice)) {
	for {
		select {
		case n := <-h.letters:
			heard(n)
		case <-h.closed:
			return
		}
	}
}

func (h *hearing) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.gone
}

func (h *hearing) close() { close(h.closed) }

func (h *hearing) look(context.Context, string) (sighting, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	return h.shown, h.shown.err
}

// change changes what the listener meets.
func (h *hearing) change(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// granted is what a grant of another process does, which notifies nobody here.
func (h *hearing) granted() { h.change(func() { h.shown.number++ }) }

// hears checks that a hint comes within a time, and no other before it.
func (h *hearing) hears(want string, within time.Duration) {
	h.t.Helper()
	began := time.Now()
	select {
	case got := <-h.heard:
		require.Equal(h.t, got, want, "was heard")
	case <-time.After(within + 1):
		h.t.Fatalf("%q was not heard within %v", want, time.Since(began))
	}
}

// hearIn runs a test in a bubble with a listener that is ready, whose session has an inbox or none.
func hearIn(t *testing.T, inbox bool, first sighting, ready func(h *hearing), test func(h *hearing)) {
	hearAt(t, func(h *hearing) (receiver, error) {
		if !inbox {
			return nil, errors.ErrUnsupported
		}
		return h, nil
	}, first, ready, test)
}

// hearAt is hearIn with what opens the inbox.
func hearAt(
	t *testing.T, open func(h *hearing) (receiver, error), first sighting,
	ready func(h *hearing), test func(h *hearing),
) {
	synctest.Test(t, func(t *testing.T) {
		h := &hearing{
			t: t, session: t.Name(), heard: make(chan string, 100), ended: make(chan error, 1),
			letters: make(chan notice), closed: make(chan struct{}), shown: first,
		}
		opened := false
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			h.ended <- listen(ctx, h.session, func() (receiver, error) {
				r, err := open(h)
				opened = err == nil
				return r, err
			}, h.look, func() { ready(h) },
				func(hint protocol.Hint) { h.heard <- hint.Attempt })
		}()
		synctest.Wait()
		test(h)
		cancel()
		synctest.Wait()
		if opened {
			<-h.closed
		}
		notifiers.Lock()
		defer notifiers.Unlock()
		if notifiers.of[h.session] != nil {
			t.Error("its notifier is still there")
		}
	})
}

func asItIs(*hearing) {}

// Broken by a first look after ready.
func TestAGrantBetweenTheInboxAndReadyIsNotForgotten(t *testing.T) {
	hearIn(t, true, sighting{waiting: true}, (*hearing).granted, func(h *hearing) { h.hears("", safetyInterval) })
}

// Broken by a listener that trusts that every notice has come.
func TestANoticeThatFoundTheInboxFullIsMissedForAMoment(t *testing.T) {
	hearIn(t, true, sighting{waiting: true}, asItIs, func(h *hearing) {
		h.granted()
		h.letters <- notice{h.session, 1, "attempt"}
		h.hears("attempt", 0)
		h.granted() // the inbox was full
		h.hears("", fullDelay)
	})
}

func TestAListenerThatRestsWakesUpWhenItsSessionMayWait(t *testing.T) {
	hearIn(t, false, sighting{}, asItIs, func(h *hearing) {
		time.Sleep(3*restInterval + restInterval/3)
		for range 20 {
			h.change(func() { h.shown.waiting = true })
			wake(h.session)
			synctest.Wait()
			h.granted()
			h.hears("", lookInterval)
			h.change(func() { h.shown.waiting = false })
			time.Sleep(3*restInterval + restInterval/3) // it rests again
		}
	})
}

// A commit that is announced is looked for until it is there.
func TestAListenerLooksForACommitThatWasAnnouncedInItsProcess(t *testing.T) {
	hearIn(t, true, sighting{waiting: true}, asItIs, func(h *hearing) {
		inTx{db: &database{}}.announce(changed{notices: []notice{{h.session, 1, "attempt"}}})
		time.Sleep(10 * lookInterval)
		select {
		case got := <-h.heard:
			t.Fatalf("%q was heard before the commit", got)
		default:
		}
		h.granted()
		h.hears("", 2*lookInterval)
	})
}

func TestAGrantInTheSameProcessIsHeardAtOnce(t *testing.T) {
	hearIn(t, true, sighting{waiting: true}, asItIs, func(h *hearing) {
		e := &engine{}
		e.deliver([]notice{{h.session, 1, "attempt"}, {"another", 1, "of another"}})
		h.hears("attempt", 0)
	})
}

func TestAListenerWhoseBoxWasTakenAwayBeginsAnew(t *testing.T) {
	hearIn(t, true, sighting{}, asItIs, func(h *hearing) {
		h.change(func() { h.gone = true })
		select {
		case err := <-h.ended:
			require.ErrorIs(t, err, errNoInbox)
		case <-time.After(safetyInterval + 1):
			t.Fatal("it goes on")
		}
	})
}

func TestAListenerEndsWhenTheDatabaseFails(t *testing.T) {
	for _, inbox := range []bool{true, false} {
		hearIn(t, inbox, sighting{}, asItIs, func(h *hearing) {
			h.change(func() { h.shown.err = driver.ErrUnavailable })
			select {
			case err := <-h.ended:
				require.ErrorIs(t, err, driver.ErrUnavailable)
			case <-time.After(safetyInterval + 1):
				t.Fatal("it goes on")
			}
		})
	}
}

// Broken by an inbox that is opened once: what kept it from that has passed, and the listener polls
// for as long as its session lives.
func TestAnInboxThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	tries := 0
	hearAt(t, func(h *hearing) (receiver, error) {
		if tries++; tries < 4 {
			return nil, errors.ErrUnsupported
		}
		return h, nil
	}, sighting{}, asItIs, func(h *hearing) {
		time.Sleep(10 * openMin)
		synctest.Wait()
		require.Equal(t, tries, 4, "tries to open an inbox that is there at the fourth")
		h.letters <- notice{session: h.session, attempt: "a1", nth: 1}
		h.hears("a1", 0)
	})
}

func TestANoticeIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []notice{{nth: 1, attempt: "a"}, {nth: 1 << 60, attempt: "with a space"}, {nth: 7}} {
		assert.Equal(t, readNotice(n.text()), n)
	}
	for _, text := range []string{"", " ", "x", "x 1", "99999999999999999999 a", "\x00"} {
		assert.Equal(t, readNotice([]byte(text)), (notice{}), text)
	}
}
