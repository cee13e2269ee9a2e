package ledger

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// behind has a caller wait in a place, and another one whose request to extend that place is in
// flight. answer answers that request.
func (w *crowd) behind() (first, second *asker, answer func(r protocol.Result, err error)) {
	w.t.Helper()
	first = w.ask(protocol.Request{})
	type outcome struct {
		r   protocol.Result
		err error
	}
	answers := make(chan outcome)
	w.join = func(protocol.Join) (protocol.Result, error) {
		a := <-answers
		return a.r, a.err
	}
	second = w.ask(protocol.Request{})
	if j := w.joined[len(w.joined)-1]; j.Extends != first.attempt {
		w.t.Fatalf("sent %+v, which does not extend %s", j, first.attempt)
	}
	w.join = nil
	return first, second, func(r protocol.Result, err error) {
		answers <- outcome{r, err}
		synctest.Wait()
	}
}

// extended is the answer to a request that has extended a place.
func extended(ahead int) protocol.Result {
	return protocol.Result{Outcome: protocol.Queued, Ahead: ahead}
}

// Broken by a claim that gets the token of one before it, or that waits for a grant of its own.
func TestAPlaceGrows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		first, second, answer := w.behind()
		answer(extended(2), nil) // an earlier answer was lost: nobody has the second token
		third := w.ask(protocol.Request{})
		if j := w.joined[2]; j.Extends != first.attempt {
			t.Errorf("%+v does not extend the place", j)
		}
		w.ask(protocol.Request{})
		if j := w.joined[3]; j.Extends != third.attempt {
			t.Errorf("%+v does not extend the latest place", j)
		}
		w.give(first.attempt, 11, 13)
		w.has(first, 11)
		if !w.pass(first) {
			t.Error("nobody has it")
		}
		w.has(second, 13)
		if w.pass(second) {
			t.Error("passed on to a place of its own")
		}
		w.gone(second)
		w.has(third, 0)
	})
}

// Broken by a place that grows for as long as it waits, although its claims give up: the database
// would count waiters that are not there.
func TestAPlaceThatMostClaimsHaveLeftDoesNotGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		first, second, answer := w.behind()
		answer(extended(1), nil)
		second.cancel()
		synctest.Wait()
		w.ask(protocol.Request{})
		if j := w.joined[2]; j.Extends != "" || w.state(first.claim.Grant) != Queued {
			t.Errorf("%+v extends a place of two of which one waits", j)
		}
	})
}

// Broken by claims that get the tokens of those before them, whose members a crash has undone.
func TestAPlaceThatHasLostMembersDoesNotGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		first, second, answer := w.behind()
		answer(extended(1), nil)
		w.join = func(protocol.Join) (protocol.Result, error) { return extended(1), nil }
		third := w.ask(protocol.Request{})
		w.is(third, store.ErrAgain)
		w.give(first.attempt, 11, 12)
		w.has(first, 11)
		w.pass(first)
		w.has(second, 12)
	})
}

// Broken by a place that is left with the lock, after a crash has undone the members of its claims.
func TestAGrantWithoutATokenForAnybodyIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		first, second, answer := w.behind()
		answer(extended(1), nil)
		first.cancel()
		synctest.Wait()
		w.give(first.attempt, 11, 11)
		if w.is(second, store.ErrAgain); w.Knows(first.attempt) {
			t.Error("it is not given back")
		}
	})
}

// Broken by the last claim that is known, which releases the lock while the next tokens belong to
// requests whose answer is on its way; and by one that waits for an answer that can bring nobody.
func TestTheLastClaimWaitsForTheAnswerThatMayBringOthers(t *testing.T) {
	broke := errors.New("the connection broke")
	for says, is := range map[string]struct {
		last   int64
		answer protocol.Result
		err    error
		waits  bool
		passed bool
	}{
		"they are behind it":                {last: 12, answer: extended(1), waits: true, passed: true},
		"they have a place of their own":    {last: 12, answer: queued, waits: true},
		"the answer is lost":                {last: 12, err: broke, waits: true},
		"there is no token for them":        {last: 11, answer: queued},
		"the server has forgotten of them":  {last: 11, answer: extended(1)},
		"there are fewer tokens than there": {last: 12, answer: extended(2), waits: true},
	} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crowd) {
				first, second, answer := w.behind()
				w.give(first.attempt, 11, is.last)
				w.Drop(first.claim, contract.ErrUnlocked)
				released := make(chan bool, 1)
				go func() {
					passed, _ := w.Pass(t.Context(), first.claim)
					released <- passed
				}()
				synctest.Wait()
				assert.Equal(t, len(released) == 0, is.waits, "Unlock waits for the answer")
				answer(is.answer, is.err)
				assert.Equal(t, <-released, is.passed, "it is passed on")
				switch {
				case is.passed:
					w.has(second, 12)
				case is.err != nil:
					w.is(second, is.err)
				case is.answer.Ahead > 0:
					w.is(second, store.ErrAgain)
				default:
					w.has(second, 0)
				}
			})
		})
	}
}

// Broken by an Unlock that does not end with its context.
func TestUnlockDoesNotWaitForAnAnswerPastItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		first, second, answer := w.behind()
		w.give(first.attempt, 11, 12)
		w.Drop(first.claim, contract.ErrUnlocked)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Pass(ctx, first.claim); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		w.Abandon(first.claim.Grant, store.Something)
		answer(extended(1), nil)
		w.is(second, store.ErrAgain)
	})
}

// Broken by a lock that is given back, although the next token belongs to a request whose answer is
// on its way; and by one that is not given back.
func TestAClaimThatGivesUpAtItsTurnWaitsForTheAnswer(t *testing.T) {
	for says, r := range map[string]protocol.Result{"behind it": extended(1), "elsewhere": queued} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crowd) {
				first, second, answer := w.behind()
				w.client.gaveUp = func(_ bool, cause error) error {
					w.deliver(first.attempt, 11, 12)
					return cause
				}
				first.cancel()
				w.is(first, context.Canceled)
				if answer(r, nil); r.Ahead > 0 {
					w.has(second, 12)
				} else if w.has(second, 0); w.Knows(first.attempt) {
					t.Error("it is not given back")
				}
			})
		})
	}
}

// Broken by a claim that waits behind a grant that serves nobody any more, or a single claim.
func TestAPlaceThatIsGoneDoesNotGrow(t *testing.T) {
	for says, end := range map[string]func(w *crowd, first *asker){
		"given up": func(_ *crowd, first *asker) { first.cancel(); synctest.Wait() },
		"lost": func(w *crowd, first *asker) {
			w.give(first.attempt, 11, 12)
			w.Lose(context.Background(), ErrDisowned, first.claim)
		},
		"split": func(w *crowd, first *asker) {
			w.detach = func(protocol.Detachment) error { return nil }
			w.give(first.attempt, 11, 12)
			<-w.Split(first.claim)
		},
		"being split": func(w *crowd, first *asker) {
			w.detach = func(protocol.Detachment) error { <-w.t.Context().Done(); return nil }
			w.give(first.attempt, 11, 12)
			w.Split(first.claim)
		},
	} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crowd) {
				first, second, answer := w.behind()
				end(w, first)
				answer(extended(1), nil)
				w.is(second, store.ErrAgain)
				if !w.in.Waiters().Empty() {
					t.Error("somebody waits still")
				}
			})
		})
	}
}
