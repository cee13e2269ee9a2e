package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// step is how far an UnlockTx is.
type step int

const (
	absent   step = iota
	inFlight      // its statement was sent
	released      // its statement released the lock in its transaction, and is not answered
	refused       // its statement did not find the lock, and is not answered
	promised      // it has succeeded, and its transaction is open
	failed        // it has failed
	undone        // it has succeeded, and its transaction was rolled back
)

// pending reports whether an UnlockTx waits for its answer.
func (s step) pending() bool { return s == inFlight || s == released || s == refused }

// owner is who has the lock in the database.
type owner int

const (
	mine owner = iota
	another
	nobodyByTx
	nobodyByUnlock
)

// world is a claim, and what happens to it: two calls of UnlockTx, in a transaction each or both in
// one, Unlock, Guard, a takeover by Break or by the same Owner elsewhere, and heartbeats.
type world struct {
	*Ledger
	claim    *Claim
	together bool // both calls are in one transaction
	db       owner
	calls    [2]step
	answered [2]func(error)

	shown   func() // of a Guard
	saw     bool   // that Guard has found the lock held, and its row not locked
	unlocks int    // 1: sent, 2: answered

	ever bool // an UnlockTx has succeeded, and no Guard has shown that it was rolled back
	told int  // how often the end of the hold was reported
	bad  []string
}

func newWorld(t *testing.T, in *store.Session, still clock.Clock, together bool) *world {
	w := &world{together: together}
	w.Ledger = newLedger(t, still)
	w.config.Client = &client{ended: func(_ *Claim, e Ending) {
		w.told++
		w.check(e.Released() == w.ever, "it ended released: %v, an UnlockTx has succeeded: %v", e.Released(), w.ever)
	}}
	w.claim = held(t, w.Ledger, in, "a", protocol.Grant{Token: 7})
	return w
}

func (w *world) check(so bool, format string, args ...any) {
	if !so {
		w.bad = append(w.bad, fmt.Sprintf(format, args...))
	}
}

// locked reports whether a transaction other than that of call i has locked the lock's row.
func (w *world) locked(i int) bool {
	for j, c := range w.calls {
		if (c == released || c == promised) && (j != i && !(w.together && i >= 0)) {
			return true
		}
	}
	return false
}

// lost reports whether the client knows that it has lost the lock.
func (w *world) lost() bool { return errors.Is(w.claim.Over(), contract.ErrLost) }

// event is one that may happen: do is nil while it cannot.
type event struct {
	name string
	do   func()
}

func (w *world) events() (all []event) {
	can := func(so bool, name string, do func()) {
		if so {
			all = append(all, event{name, do})
		}
	}
	for i, c := range w.calls {
		call := func(so bool, name string, do func()) { can(so, fmt.Sprint(name, " ", i), do) }
		call(c == absent && (i == 0 || w.calls[0] != absent), "UnlockTx begins", func() {
			if answered, ok := w.Promise(w.claim); ok {
				w.answered[i], w.calls[i] = answered, inFlight
			} else {
				w.calls[i] = failed
			}
		})
		call(c == inFlight && !w.locked(i), "its statement runs", func() {
			w.calls[i] = refused
			if w.db == mine && !(w.together && slices.ContainsFunc(w.calls[:], func(c step) bool {
				return c == released || c == promised
			})) {
				w.calls[i] = released
			}
		})
		call(c == released, "it succeeds", func() {
			w.calls[i], w.ever = promised, true
			w.answered[i](nil)
		})
		last := !w.together || w.calls[1-i] != refused                                  // a connection answers in order
		call(c == inFlight || c == released && last, "its answer is an error", func() { // and it is rolled back
			if w.together && w.calls[1-i] == promised {
				w.calls[1-i] = undone
			}
			w.calls[i] = failed
			w.answered[i](errors.New("cut off"))
		})
		call(c == refused, "it does not find the lock", func() {
			w.calls[i] = failed
			w.answered[i](driver.ErrNotHeld)
			if w.Relies(w.claim) { // as package tx does
				w.Lose(context.Background(), driver.ErrNotHeld, w.claim)
				w.check(w.db == another, "lost, and no other client has it")
			}
		})
		pending := w.together && w.calls[1-i].pending()
		call(c == promised && !pending, "commit", func() { w.calls[i], w.db = undone, nobodyByTx })
		call(c == promised && !pending, "rollback", func() { w.calls[i] = undone })
	}
	can(w.db == mine && !w.locked(-1), "Break", func() { w.db = another })
	can(w.db != mine && w.db != nobodyByUnlock, "a heartbeat shows that", func() {
		live := w.claim.Over() == nil
		w.Lose(context.Background(), ErrDisowned, w.claim)
		if live && !w.ever {
			w.check(w.lost(), "the context is live beside the next holder's: %v", w.claim.Over())
		}
	})
	can(w.shown == nil && w.claim.Over() == nil, "Guard begins", func() { _, w.shown = w.Promised(w.claim) })
	can(w.shown != nil && !w.saw && w.db == mine && !w.locked(-1), "Guard finds the lock", func() { w.saw = true })
	can(w.saw, "Guard succeeds", func() {
		w.shown()
		w.shown, w.saw = nil, false
		w.ever = w.ever && !w.Relies(w.claim)
	})
	can(w.unlocks == 0, "Unlock", func() {
		w.unlocks = 1
		if !w.Drop(w.claim, contract.ErrUnlocked) {
			w.check(w.lost(), "Unlock finds that it has ended by %v", w.claim.Over())
			w.unlocks = 2
		}
	})
	can(w.unlocks == 1 && !w.locked(-1), "Unlock is answered", func() {
		w.unlocks = 2
		switch {
		case w.StateOf(w.claim) == Ended:
			w.check(w.ever, "Unlock says that UnlockTx has released it")
		case w.db == mine:
			w.db = nobodyByUnlock
			w.Finish(w.claim.Grant, false)
		default:
			w.check(w.Absent(w.claim) == !w.ever, "Unlock says lost, and an UnlockTx has succeeded: %v", w.ever)
		}
	})
	return all
}

// always checks what holds after every event.
func (w *world) always() {
	relied := w.Relies(w.claim)
	w.check(!relied || !slices.Contains(w.calls[:], promised), "it is relied upon, and a transaction releases it")
	w.check(!relied || w.db == mine || w.db == another, "it is relied upon, and was released")
	pending := slices.ContainsFunc(w.calls[:], step.pending)
	w.check(relied || w.ever || pending || w.claim.Over() != nil,
		"no UnlockTx has succeeded, and it is not relied upon")
	w.check(w.told <= 1, "its end is reported %d times", w.told)
	w.check(w.db != nobodyByTx || !w.lost(), "it was released by UnlockTx, and counts as lost")
}

// key tells apart what may happen next.
func (w *world) key() string {
	return fmt.Sprint(w.together, w.db, w.calls, w.shown != nil, w.saw, w.unlocks, w.ever, w.told, w.claim.Over(),
		w.claim.state, w.claim.Grant.state, w.claim.pledge)
}

// Broken by a hold that counts as released before the statement of UnlockTx has succeeded, by one
// that is relied upon while a transaction may release it, and by a release that is taken for a
// loss. The test plays all orders of events.
func TestAHoldIsReleasedByWhatSucceededWhateverTheOrder(t *testing.T) {
	still := clock.Func(func() time.Duration { return 0 })
	in := aliveSession(t, still)
	play := func(together bool, names []string) *world {
		w := newWorld(t, in, still, together)
		for _, name := range names {
			all := w.events()
			all[slices.IndexFunc(all, func(e event) bool { return e.name == name })].do()
			w.always()
		}
		return w
	}
	seen := map[string]bool{}
	for _, together := range []bool{false, true} {
		for paths := [][]string{nil}; len(paths) > 0; {
			path := paths[0]
			paths = paths[1:]
			for _, e := range play(together, path).events() {
				next := append(slices.Clone(path), e.name)
				w := play(together, next)
				if len(w.bad) > 0 {
					t.Fatalf("%s\nafter: %s", strings.Join(w.bad, "; "), strings.Join(next, ", "))
				}
				if key := w.key(); !seen[key] {
					seen[key] = true
					paths = append(paths, next)
				}
				w.claim.alarm.silence()
				w.claim.cancel(context.Canceled)
			}
		}
	}
	if len(seen) < 500 {
		t.Errorf("%d cases only", len(seen))
	}
	t.Logf("%d cases", len(seen))
}
