package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// settlements has what a hub was told to settle, and answers when it may.
type settlements struct {
	asked []driver.Own
	may   chan struct{}
}

// hubWithRuns has three waiters of one name.
func hubWithRuns(t *testing.T) (*Hub, *settlements, []*Waiter) {
	f := &table{}
	h := room(t, f)
	s := &settlements{may: make(chan struct{})}
	h.config.Settle = func(ctx context.Context, _ *Run, present driver.Own, _ int) {
		s.asked = append(s.asked, present)
		select {
		case <-s.may:
		case <-ctx.Done():
		}
	}
	f.queue("n", time.Hour, "a", "b", "c")
	var waiters []*Waiter
	for _, attempt := range []string{"a", "b", "c"} {
		waiters = append(waiters, h.enter("n", attempt))
	}
	return h, s, waiters
}

// hubWithUntakenPass has a run of a, b and c with tokens from 7 on. a has passed it on, and b has
// not taken its answer.
func hubWithUntakenPass(t *testing.T) (*Hub, *settlements, []*Waiter, *Run) {
	h, s, w := hubWithRuns(t)
	h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
	first, _ := has(w[0])
	first.Run.Pass("a")
	return h, s, w, first.Run
}

// handoffs are a run of attempts with tokens from first on.
func handoffs(first int64, attempts ...string) (next []driver.Handoff) {
	run := driver.Range{First: first, Last: first + int64(len(attempts)) - 1}
	for i, attempt := range attempts {
		next = append(next, driver.Handoff{Session: me, Attempt: attempt, Grant: driver.Grant{Token: first + int64(i), Run: run}})
	}
	return next
}

// has reports whether a waiter has been answered, and with what.
func has(w *Waiter) (Result, bool) {
	synctest.Wait()
	select {
	case r := <-w.C:
		return r, true
	default:
		return Result{}, false
	}
}

func TestARunGoesFromOneToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, w := hubWithRuns(t)
		h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
		r, first := has(w[0])
		if _, second := has(w[1]); !first || second || r.Grant.Token != 7 {
			t.Fatalf("%+v %v %v", r, first, second)
		}
		if r.Run.Pass("b") {
			t.Error("passed on by one that does not have it")
		}
		if !r.Run.Pass("a") || r.Run.Pass("a") {
			t.Error("it is passed on once")
		}
		if r, ok := has(w[1]); !ok || r.Grant.Token != 8 {
			t.Errorf("the second: %+v %v", r, ok)
		}
		h.Remove(w[2])
		if r.Run.Pass("b") || !r.Run.Releasing() {
			t.Error("passed on to one that has left")
		}
		time.Sleep(2 * runLimit)
		if r.Run.End(); len(s.asked) != 0 || len(h.Runs()) != 0 {
			t.Errorf("settled %v, goes on: %v", s.asked, h.Runs())
		}
	})
}

// Broken by letting the second member begin for news of a run that had begun already.
func TestNewsOfARunCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, w := hubWithRuns(t)
		h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
		r, _ := has(w[0])
		h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
		if _, second := has(w[1]); second {
			t.Fatal("the same news again, and two have the lock")
		}
		r.Run.End() // settled, and then released
		h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
		if _, second := has(w[1]); second {
			t.Error("old news, after the run was over")
		}
		h.Deliver("name", handoffs(10, "b", "c"), 0)
		if r, second := has(w[1]); !second || r.Grant.Token != 10 {
			t.Error("the next run does not begin")
		}
	})
}

// The member to which a run was passed on has not heard of it yet when the database takes the run,
// has its members wait again, and grants them the name anew. Broken by leaving it with what it was
// passed: it would give its place back, and those behind it would have the lock before it.
func TestAGrantThatNobodyKnowsOfIsTakenBackWithItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, w, _ := hubWithUntakenPass(t)
		h.Deliver("name", handoffs(10, "b", "c"), 0)
		got, ok := has(w[1])
		if _, next := has(w[2]); !ok || got.Grant.Token != 10 || next {
			t.Errorf("the first: %+v %v, the next one: %v", got, ok, next)
		}
		if len(s.asked) != 1 || s.asked[0] != (driver.Own{}) {
			t.Errorf("settled: %+v", s.asked)
		}
		if !got.Run.Pass("b") {
			t.Error("is not passed on")
		}
		if next, ok := has(w[2]); !ok || next.Grant.Token != 11 {
			t.Errorf("the next one: %+v %v", next, ok)
		}
		close(s.may)
	})
}

// Broken by giving back the place of a member that has not heard of the run: where it waits, or was
// granted the name since, others would have the lock before it.
func TestAMemberThatKnowsNothingOfARunThatWasTakenWaitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, w, r := hubWithUntakenPass(t)
		if present := r.Disown(); present != (driver.Own{}) || !r.Over() {
			t.Errorf("has it: %+v, over: %v", present, r.Over())
		}
		h.Deliver("name", handoffs(10, "b"), 0)
		if got, ok := has(w[1]); !ok || got.Grant.Token != 10 {
			t.Errorf("%+v %v", got, ok)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h, _, w := hubWithRuns(t)
		h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
		r, _ := has(w[0])
		if present := r.Run.Disown(); present.Attempt != "a" || present.Grant.Token != 7 {
			t.Errorf("%+v has it", present)
		}
	})
}

// Broken by a hint that gives two members one token. Broken also by a hint that begins a run
// without its head: once the head has left, only a look tells the state of the run.
func TestAHintBeginsARunWhoseHeadWaits(t *testing.T) {
	hint := driver.Hint{Attempt: "a", Grant: driver.Grant{Token: 7, Contended: true}, Behind: []string{"b", "c"}}
	synctest.Test(t, func(t *testing.T) {
		h, _, w := hubWithRuns(t)
		h.heard(hint)
		h.heard(hint)
		for i := range w {
			r, ok := has(w[i])
			want := driver.Grant{Token: 7 + int64(i), Contended: true, Run: driver.Range{First: 7, Last: 9}}
			if !ok || r.Grant != want || r.Run == nil {
				t.Fatalf("%d: %+v %v", i, r, ok)
			}
			if i < 2 {
				if _, next := has(w[i+1]); next {
					t.Fatal("two have the lock")
				}
			}
			if passed := r.Run.Pass(w[i].Attempt); passed != (i < 2) {
				t.Errorf("%d: passed on: %v", i, passed)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h, _, w := hubWithRuns(t)
		h.Remove(w[0])
		synctest.Wait()
		f := h.backend.(*table)
		looks := f.looks
		h.heard(hint)
		if _, second := has(w[1]); second {
			t.Error("begins without its head")
		}
		if f.looks == looks {
			t.Error("nobody looks what became of it")
		}
	})
}

// Broken by passing on while, or after, the database is told who has the lock.
func TestNobodyBeginsOnceARunIsBeingSettled(t *testing.T) {
	for _, by := range []string{"the clock", "its holder"} {
		synctest.Test(t, func(t *testing.T) {
			h, s, w := hubWithRuns(t)
			h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
			r, _ := has(w[0])
			r.Run.Pass("a")
			if by == "the clock" {
				time.Sleep(runLimit)
			} else {
				r.Run.Settle()
			}
			synctest.Wait()
			if len(s.asked) != 1 || s.asked[0].Attempt != "b" || s.asked[0].Grant.Token != 8 {
				t.Fatalf("%s: settles %+v", by, s.asked)
			}
			if r.Run.Pass("b") {
				t.Errorf("%s: passed on while it is settled", by)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.Run.Settled(ctx); err == nil {
				t.Errorf("%s: it counts as settled before there is an answer", by)
			}
			close(s.may)
			if err := r.Run.Settled(t.Context()); err != nil || r.Run.Pass("b") || !r.Run.Over() {
				t.Errorf("%s: %v, over %v", by, err, r.Run.Over())
			}
			<-r.Run.Settle()
			if len(s.asked) != 1 {
				t.Errorf("%s: settled again: %+v", by, s.asked)
			}
			if _, third := has(w[2]); third {
				t.Errorf("%s: the third has it too", by)
			}
		})
	}
}

// Broken by going on with a run after the name was granted anew, by UnlockTx or Break elsewhere.
func TestALaterGrantEndsARun(t *testing.T) {
	for what, next := range map[string][]driver.Handoff{
		"a run": handoffs(10, "b", "c"),
		"one":   {{Session: me, Attempt: "b", Grant: driver.Grant{Token: 10}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, s, w := hubWithRuns(t)
			h.Deliver("name", handoffs(7, "a", "b", "c"), 0)
			r, _ := has(w[0])
			h.Deliver("name", next, 0)
			if got, ok := has(w[1]); !ok || got.Grant.Token != 10 {
				t.Errorf("%s: %+v %v", what, got, ok)
			}
			if r.Run.Pass("a") || len(s.asked) != 1 {
				t.Errorf("%s: the run before it goes on", what)
			}
			if _, third := has(w[2]); third {
				t.Errorf("%s: the third has it too", what)
			}
			close(s.may)
		})
	}
}

func TestALookDuringARunTakesNobodysPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{}
		h := room(t, f)
		f.queue("n", time.Hour, "a", "b", "c")
		a, b, c := h.enter("n", "a"), h.enter("n", "b"), h.enter("n", "c")
		var own []driver.Own
		for _, n := range handoffs(7, "a", "b") {
			own = append(own, driver.Own{Attempt: n.Attempt, Grant: n.Grant})
		}
		h.config.Settle = func(context.Context, *Run, driver.Own, int) {}
		f.set(func() {
			f.states["n"] = driver.State{Name: "n", Waiters: 2, Queued: []string{"c"}, Granted: own,
				Holder: driver.Holder{Session: me, Attempt: "a", Left: time.Minute, Grant: driver.Grant{Token: 8}}}
		})
		h.Recheck("n")
		r, ok := has(a)
		if _, second := has(b); !ok || second {
			t.Fatalf("%+v %v %v", r, ok, second)
		}
		h.Recheck("n")
		if r, second := has(b); second {
			t.Errorf("a second look: %+v", r)
		}
		if r, third := has(c); third {
			t.Errorf("the place behind the run: %+v", r)
		}
		r.Run.End()
	})
}

func TestRemoveReturnsAnAnswerThatNobodyTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, w := hubWithRuns(t)
		if _, answered := h.Remove(w[2]); answered {
			t.Error("an answer before there is one")
		}
		h.Deliver("name", handoffs(7, "a", "b"), 0)
		r, answered := h.Remove(w[0])
		if !answered || r.Run == nil || !r.Run.Pass("a") {
			t.Fatalf("%+v %v", r, answered)
		}
		if r, ok := has(w[1]); !ok || r.Grant.Token != 8 {
			t.Errorf("the next: %+v %v", r, ok)
		}
		r.Run.End()
	})
}

// Broken by counting those that wait for news, or whose grants are part of no run: nobody is to
// wait for them.
func TestAheadAreThoseWhoMayHaveARunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := room(t, &table{})
		defer h.Unwatch(h.Watch("n", "watch"))
		h.Add("n", "alone", false)
		h.Add("m", "elsewhere", true)
		w := h.Add("n", "passable", true)
		if n, _ := h.Ahead("n"); n != 1 {
			t.Errorf("%d are ahead: want 1", n)
		}
		h.Remove(w)
		if n, _ := h.Ahead("n"); n != 0 {
			t.Errorf("%d are ahead: want none", n)
		}
	})
}
