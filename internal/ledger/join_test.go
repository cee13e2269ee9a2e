package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/wait"
)

// Broken by a claim that gets the token of another, and by one that gave up and is served.
func TestClaimsHaveTheLockOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(4)
		w.give(attempt, 11, 14)
		w.has(all[0], 11)
		if g := all[0].claim.Grant; g.Given.Token != 14 || g.asked != 42 {
			t.Errorf("%+v, asked at %v", g.Given, g.asked)
		}
		w.has(all[1], 0)
		all[1].cancel()
		w.is(all[1], context.Canceled)
		if !w.pass(all[0]) {
			t.Error("nobody has it")
		}
		w.has(all[2], 13)
		w.has(all[3], 0)
		if !w.pass(all[2]) {
			t.Error("nobody has it")
		}
		w.has(all[3], 14)
		if w.pass(all[3]) {
			t.Error("passed on to nobody")
		}
		if w.gone(all[3]); !w.Empty() {
			t.Errorf("%v are left", w.attempts)
		}
	})
}

// Broken by a claim that is served although the database is about to show the one before it as the
// holder.
func TestALockThatIsSplitIsNotPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(3)
		w.give(attempt, 11, 13)
		told := make(chan protocol.Detachment, 1)
		outcome := make(chan error)
		w.detach = func(d protocol.Detachment) error { told <- d; return <-outcome }
		done := w.Split(all[0].claim)
		d := <-told
		if d.Token != 11 || d.Thread != "thread of "+all[0].attempt ||
			d.Behind.Members != 2 || d.Behind.Thread != "thread of "+all[1].attempt {
			t.Errorf("%+v", d)
		}
		released := make(chan bool, 1)
		go func() { released <- w.pass(all[0]) }()
		w.has(all[1], 0)
		if len(released) > 0 {
			t.Error("released before it is known which token the database has")
		}
		outcome <- nil
		if <-done; <-released {
			t.Error("passed on")
		}
		w.gone(all[0])
		w.has(all[1], 0)
		w.give(d.Behind.Attempt, 21, 22)
		w.has(all[1], 21)
		w.pass(all[1])
		w.has(all[2], 22)
		w.detach = func(d protocol.Detachment) error {
			if d.Token != 22 || d.Behind.Members != 0 {
				t.Errorf("%+v", d)
			}
			return nil
		}
		<-w.Split(all[2].claim)
		if w.Split(all[2].claim) != nil {
			t.Error("the only holder is split off again")
		}
	})
}

// Broken by a heartbeat that has the database show a claim which has passed the lock on meanwhile:
// the one that has it then would be lost. And by one that it has show what is being released.
func TestAClaimThatHasPassedTheLockOnIsNotSplitOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(2)
		w.give(attempt, 11, 12)
		for i, c := range all {
			assert.Equal(t, w.pass(c), (i == 0), i, "has passed it on")
			if w.Split(c.claim) != nil {
				t.Errorf("%d is split off", i)
			}
		}
		w.gone(all[1])
	})
}

// Broken by a claim whose turn has come when it gives up, and that keeps the lock: the name stands
// still for as long as its session lives.
func TestAClaimThatGivesUpAtItsTurnPassesTheLockOn(t *testing.T) {
	for what, behind := range map[string]int{"to the next claim": 1, "back, as the last claim": 0} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crowd) {
				all, attempt := w.together(1 + behind)
				w.client.gaveUp = func(_ bool, cause error) error {
					w.deliver(attempt, 11, 11+int64(behind))
					return cause
				}
				all[0].cancel()
				w.is(all[0], context.Canceled)
				if behind > 0 {
					w.has(all[1], 12)
				} else if w.Knows(attempt) || w.Busy(w.in, "n") {
					t.Error("no claim has it, and it is not given back")
				}
			})
		})
	}
}

// Broken by requests that do not wait for those of their session that pass the name on: each would
// stand in the queue alone from then on; and by requests that wait longer than that is worth.
func TestRequestsAreHeldBackWhileTheirSessionPassesTheNameOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		holdsBack := func(want time.Duration, while string) {
			t.Helper()
			began := time.Now()
			w.holdBack(w.in, "n")
			assert.Equal(t, time.Since(began), want, "the delay while "+while)
		}
		holdsBack(0, "nobody has the name")
		all, attempt := w.together(3)
		w.give(attempt, 1, 3)
		holdsBack(holdBackStep, "one claim has it")
		sent := w.statements()
		late := w.ask(protocol.Request{})
		assert.Equal(t, w.statements(), sent, "statements at once")
		time.Sleep(holdBackStep)
		synctest.Wait()
		assert.Equal(t, w.statements(), sent+1, "statements after a while")
		late.cancel()
		time.AfterFunc(holdBackStep/2, func() { w.pass(all[0]) })
		holdsBack(2*holdBackStep, "it is passed on once")
		w.pass(all[1])
		if w.pass(all[2]) {
			t.Error("a fourth claim has it")
		}
		holdsBack(holdBackRounds*holdBackStep, "its release is not answered")
		time.AfterFunc(5*holdBackStep/2, func() { w.gone(all[2]) })
		holdsBack(5*holdBackStep/2, "its release goes on")
		if holdsBack(0, "nobody has it any more"); w.Busy(w.in, "n") {
			t.Error("the name is busy")
		}
	})
}

// Broken by a name that stays busy after its only request: a goroutine that locks it in a loop
// would queue each time.
func TestARequestWithoutOthersLeavesItsNameFree(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		w.join = func(protocol.Join) (protocol.Result, error) {
			return protocol.Result{Outcome: protocol.Done, Grant: protocol.Grant{First: 1, Token: 1}}, nil
		}
		c := w.ask(protocol.Request{})
		w.has(c, 1)
		if w.pass(c) {
			t.Error("somebody else has the lock")
		}
		if w.gone(c); w.Busy(w.in, "n") {
			t.Error("the name is busy")
		}
	})
}

// Broken by requests that share a grant although they differ, or their owner may be in the way of
// others: the database shows the first alone.
func TestOnlyPlainRequestsShareAGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		answer := make(chan struct{})
		w.join = func(protocol.Join) (protocol.Result, error) {
			<-answer
			return queued, nil
		}
		for _, r := range []protocol.Request{
			{}, {}, {}, {Units: 1, Of: 2}, {Lease: time.Second}, {MinHold: time.Second}, {Metadata: "{}"},
			{Candidate: true},
		} {
			w.ask(r)
		}
		close(answer)
		synctest.Wait()
		var members []int
		for _, r := range w.joined {
			members = append(members, r.Members)
		}
		slices.Sort(members)
		if got := fmt.Sprint(members); got != "[1 1 1 1 1 1 2]" {
			t.Errorf("joined by %s claims: want the first, five that are not plain, and two together", got)
		}
		r := protocol.Request{Name: "n"}
		if plain(&r, true) || !plain(&r, false) {
			t.Error("what an owner asks for that holds something is plain, or nothing is")
		}
	})
}

// Broken by a place that is left in the queue, or given up while somebody waits there.
func TestTheLastClaimThatGivesUpGivesUpThePlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(2)
		before := len(w.abandoned)
		all[0].cancel()
		synctest.Wait()
		assert.Equal(t, len(w.abandoned), before, "the place is given up, and one waits there")
		all[1].cancel()
		synctest.Wait()
		if len(w.abandoned) != before+1 || w.Knows(attempt) || !w.in.Waiters().Empty() {
			t.Errorf("%v are abandoned, and %v waits", w.abandoned, !w.in.Waiters().Empty())
		}
		w.give(attempt, 1, 2) // too late
		if w.Busy(w.in, "n") {
			t.Error("it has the lock all the same")
		}
	})
}

// Broken by a grant that counts twice: two claims would have the lock.
func TestAGrantThatIsToldTwiceServesOneClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(2)
		w.give(attempt, 11, 12)
		w.has(all[0], 11)
		w.answered(all[0].claim.Grant, wait.Result{Granted: true, Grant: protocol.Grant{First: 11, Token: 12}})
		w.has(all[1], 0)
	})
}

// Broken by a request that is granted before its own statement is answered, and given back then.
func TestAGrantMayComeBeforeTheAnswer(t *testing.T) {
	for _, plain := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *crowd) {
			answer := make(chan protocol.Outcome)
			w.join = func(protocol.Join) (protocol.Result, error) {
				return protocol.Result{Outcome: <-answer, Grant: protocol.Grant{First: 11, Token: 11}}, nil
			}
			r := protocol.Request{}
			if !plain {
				r.Units, r.Of = 1, 2
			}
			c := w.ask(r)
			w.give(c.attempt, 11, 11) // before its own statement is answered
			answer <- protocol.Done
			w.has(c, 11)
			if len(w.abandoned) > 0 || w.pass(c) {
				t.Errorf("abandoned: %v", w.abandoned)
			}
			w.gone(c)
		})
	}
}

// Broken by a statement whose error ends the lock that a claim has.
func TestAnAnswerThatIsLostAfterTheGrantChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		lost := make(chan error)
		w.join = func(protocol.Join) (protocol.Result, error) {
			return protocol.Result{}, <-lost
		}
		c := w.ask(protocol.Request{})
		w.give(c.attempt, 11, 11)
		w.has(c, 11)
		lost <- errors.New("the connection broke")
		if w.has(c, 11); len(w.abandoned) > 0 {
			t.Error("what it has is given back")
		}
	})
}

// Broken by an error that leaves what the statement may still do in the database.
func TestAStatementWithoutAnAnswerIsAbandoned(t *testing.T) {
	broke := errors.New("the connection broke")
	raced := driver.Fail(driver.ErrRetry, errors.New("a race"))
	for err, abandoned := range map[error]int{broke: 1, raced: 0, errRefused: 0} {
		for _, lease := range []time.Duration{0, time.Second} {
			inBubble(t, func(t *testing.T, w *crowd) {
				w.join = func(protocol.Join) (protocol.Result, error) {
					return protocol.Result{}, err
				}
				c := w.ask(protocol.Request{Lease: lease})
				w.is(c, err)
				if len(w.abandoned) != abandoned || !w.Empty() || !w.in.Waiters().Empty() {
					t.Errorf("%v: abandoned %v, and %v are left", err, w.abandoned, w.attempts)
				}
			})
		}
	}
}

// Broken by claims that are served before it is known whether the transaction of UnlockTx was
// committed, or that wait in a queue in which they are not.
func TestClaimsBehindATransactionWaitForItsOutcome(t *testing.T) {
	for outcome, committed := range map[string]bool{"commit": true, "rollback": false} {
		t.Run(outcome, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crowd) {
				all, attempt := w.together(3)
				w.give(attempt, 11, 13)
				answered, _ := w.Promise(all[0].claim)
				d := w.Detachment(all[0].claim)
				if again := w.Detachment(all[0].claim); again != d || d.Token != 11 || d.Behind.Members != 2 {
					t.Errorf("%+v, and again %+v", d, again)
				}
				answered(nil)
				if !committed {
					if w.pass(all[0]) {
						t.Error("passed on in memory")
					}
					w.has(all[1], 0)
					w.gone(all[0])
					w.is(all[1], store.ErrAgain)
					w.is(all[2], store.ErrAgain)
					return
				}
				w.Lose(context.Background(), ErrDisowned, all[0].claim)
				w.give(d.Behind.Attempt, 21, 22)
				w.has(all[1], 21)
			})
		})
	}
}

// Broken by claims that are believed to wait in the queue before the split has put them there: the
// hub finds no place, and nobody hears of the grant that comes later.
func TestClaimsBehindASplitWaitForItAlthoughUnlockDoesNot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(2)
		w.give(attempt, 11, 12)
		outcome := make(chan error)
		w.detach = func(protocol.Detachment) error { return <-outcome }
		done := w.Split(all[0].claim)
		rest := all[0].claim.Grant.rest
		w.Drop(all[0].claim, contract.ErrUnlocked)
		if w.Split(all[0].claim) != done {
			t.Error("who waits for the split is told that there is none")
		}
		w.Abandon(all[0].claim.Grant, store.Something)
		synctest.Wait()
		assert.Equal(t, w.state(rest), Sent, "while the split is under way")
		outcome <- nil
		synctest.Wait()
		assert.Equal(t, w.state(rest), Queued, "after the split")
	})
}

// Broken by a lost answer to a release that comes when the client has released the lock already.
func TestAnAnswerThatIsLostLateChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(1)
		w.give(attempt, 11, 11)
		w.Drop(all[0].claim, contract.ErrUnlocked)
		g := all[0].claim.Grant
		w.Abandon(g, store.Unsure)
		w.ReleaseUnanswered(g)
		assert.Equal(t, w.state(g), Leaving, "while it is released in the background")
		synctest.Wait()
		w.ReleaseUnanswered(g)
		assert.Equal(t, w.state(g), Gone, "after that")
	})
}

// Broken by a lease that transactions pass although LockTx has given it up.
func TestALeaseThatWasAbandonedIsNotPassed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		all, attempt := w.together(1)
		w.give(attempt, 11, 11)
		w.Lend(all[0].claim)
		g := all[0].claim.Grant
		assert.Equal(t, w.MayPass(attempt, g, 1, "tx"), true, "the transaction that it was granted for")
		w.Abandon(g, store.Something)
		assert.Equal(t, w.MayPass(attempt, nil, 0, "tx"), false, "after that")
	})
}

// Broken by a call that waits in vain.
func TestWhatEndsTheWaiting(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Second} {
		inBubble(t, func(t *testing.T, w *crowd) {
			c := w.ask(protocol.Request{Lease: lease})
			w.in.End(ErrDisowned)
			w.is(c, store.ErrSessionOver)
		})
		inBubble(t, func(t *testing.T, w *crowd) {
			c := w.ask(protocol.Request{Lease: lease})
			c.cancel()
			w.is(c, context.Canceled)
			assert.Equal(t, c.err.Error(), "queued true: context canceled", c.err)
		})
	}
}

// Broken by a request that is sent with more claims than a grant may have.
func TestAGrantHasAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crowd) {
		answer := make(chan struct{})
		w.join = func(protocol.Join) (protocol.Result, error) {
			<-answer
			return queued, nil
		}
		w.ask(protocol.Request{})
		for range protocol.MaxMembers + 1 {
			w.begin(protocol.Request{})
		}
		synctest.Wait()
		close(answer)
		synctest.Wait()
		if n := len(w.joined); n != 3 || w.joined[1].Members != protocol.MaxMembers || w.joined[2].Members != 1 {
			t.Errorf("%d statements, the last with %+v", n, w.joined[n-1])
		}
	})
}
