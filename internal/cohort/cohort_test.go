package cohort

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/wait"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const me = "me"

// world is a client with one session, whose database queues every request unless join says
// otherwise.
type world struct {
	t    *testing.T
	q    *Queues
	in   *fake
	end  context.CancelFunc // ends the session
	join func(ctx context.Context, r protocol.Request) (protocol.Grant, protocol.Outcome, error)

	mu        sync.Mutex // protects what follows
	joined    []protocol.Request
	live      map[string]bool // the attempts that are not finished and not abandoned
	abandoned []string
}

func newWorld(t *testing.T) *world {
	began := time.Now()
	now := clock.Func(func() time.Duration { return time.Since(began) })
	quiet := slog.New(slog.DiscardHandler)
	report := outage.New(quiet, "")
	w := &world{t: t, live: map[string]bool{}}
	calls := store.NewCalls()
	ctx, end := context.WithCancel(t.Context())
	w.end = end
	w.q = New(Config{
		Clock: now, Calls: calls,
		Register:   func(_, attempt string) { w.register(attempt) },
		Passing:    func(string) {},
		Finish:     w.finish,
		Abandon:    func(_ Session, _, attempt string, _ store.Residue) { w.abandon(attempt) },
		Deadlocked: func(deadlock.Cycle) error { return errCycle },
		GaveUp: func(_ Session, _ string, queued bool, cause error) error {
			return fmt.Errorf("queued %v: %w", queued, cause)
		},
	})
	hub := wait.New(ctx, nowhere{}, me, wait.Config{
		Clock: now, Log: quiet, Hearing: report, Looking: report, Taking: report, Safety: time.Hour, Limit: time.Hour,
	})
	w.in = &fake{ctx, hub, deadlock.New(ctx, nowhere{}, deadlock.Config{Clock: now, Report: report}), w}
	t.Cleanup(func() {
		calls.Stop(nil)
		calls.Wait()
		calls.Abort()
		end()
		hub.Wait()
	})
	return w
}

var (
	errRefused = driver.Refused(errors.New("refused"))
	errCycle   = errors.New("a cycle")
)

func (w *world) register(attempt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[attempt] = true
}

func (w *world) finish(attempt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.live[attempt] {
		w.t.Errorf("%s is finished, and was already", attempt)
	}
	delete(w.live, attempt)
}

func (w *world) abandon(attempt string) {
	w.finish(attempt)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = append(w.abandoned, attempt)
}

// fake is the session of a world.
type fake struct {
	ctx    context.Context
	hub    *wait.Hub
	cycles *deadlock.Detector
	world  *world
}

func (f *fake) Context() context.Context   { return f.ctx }
func (f *fake) Waiters() *wait.Hub         { return f.hub }
func (f *fake) Cycles() *deadlock.Detector { return f.cycles }

func (f *fake) Join(ctx context.Context, r *protocol.Request) (a store.Answer, err error) {
	w := f.world
	w.mu.Lock()
	w.joined = append(w.joined, *r)
	w.mu.Unlock()
	a.Outcome = protocol.Queued
	if w.join != nil {
		a.Grant, a.Outcome, err = w.join(ctx, *r)
	}
	a.Left = store.ResidueOf(err)
	return a, err
}

// nowhere is a database with nothing to look at.
type nowhere struct{}

func (nowhere) Read(ctx context.Context, _ string, _ []string, _ int) ([]driver.State, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (nowhere) TakeOver(context.Context, string, protocol.Holder) (protocol.Result, error) {
	return protocol.Result{}, nil
}

func (nowhere) Recount(context.Context, string) (protocol.Result, error) {
	return protocol.Result{}, nil
}

func (nowhere) Listen(ctx context.Context, ready func(), _ func(protocol.Hint)) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func (nowhere) WaitGraph(context.Context, []driver.Waiting) ([]driver.Wait, error) { return nil, nil }

// caller is a caller of Join.
type caller struct {
	attempt string
	member  *Member
	err     error
	cancel  context.CancelFunc
	done    bool
}

// ask has a caller ask for a name, and returns once nothing moves any more.
func (w *world) ask(r protocol.Request) *caller {
	c := w.begin(r)
	synctest.Wait()
	return c
}

func (w *world) begin(r protocol.Request) *caller {
	ctx, cancel := context.WithCancel(w.t.Context())
	r.Name, r.Session, r.Attempt = "n", me, deadlock.NewAttempt("")
	r.Host, r.Thread = "host of "+r.Attempt, "thread of "+r.Attempt
	w.register(r.Attempt)
	c := &caller{attempt: r.Attempt, cancel: cancel}
	go func() {
		defer cancel()
		c.member, c.err = w.q.Join(ctx, w.in, &r, false)
		c.done = true
	}()
	return c
}

// cohort has callers wait in one place, and returns them with the attempt of their cohort.
func (w *world) cohort(n int) (callers []*caller, attempt string) {
	w.t.Helper()
	answer := make(chan struct{})
	before := w.join
	w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
		<-answer
		return protocol.Grant{}, protocol.Queued, nil
	}
	first := w.ask(protocol.Request{}) // while its statement is in flight, the others gather
	for range n {
		callers = append(callers, w.ask(protocol.Request{}))
	}
	first.cancel()
	synctest.Wait()
	w.join = before
	close(answer)
	synctest.Wait()
	last := w.joined[len(w.joined)-1]
	if last.Members != n || last.Attempt != callers[0].attempt {
		w.t.Fatalf("%+v was sent for %d members", last, n)
	}
	return callers, last.Attempt
}

// grant has the database grant the lock to an attempt, with a token for each member.
func (w *world) grant(attempt string, first, last int64) {
	w.deliver(attempt, first, last)
	synctest.Wait()
}

func (w *world) deliver(attempt string, first, last int64) {
	g := protocol.Grant{First: first, Token: last}
	w.in.hub.Deliver([]protocol.Handoff{{Session: me, Attempt: attempt, Grant: g}}, 42)
}

// has fails the test unless this caller has the lock, with a token; 0: it waits.
func (w *world) has(c *caller, token int64) {
	w.t.Helper()
	synctest.Wait()
	switch {
	case token == 0 && c.done:
		w.t.Errorf("a caller that waits was told %v", c.err)
	case token != 0 && (c.member == nil || c.member.Token() != token):
		w.t.Errorf("a caller has no lock with token %d: %+v", token, c)
	}
}

// pass has a caller pass the lock on, and reports whether it went to the next.
func (w *world) pass(c *caller) bool {
	passed, err := c.member.Pass(w.t.Context())
	assert.NoError(w.t, err)
	synctest.Wait()
	return passed
}

// is fails the test unless a caller was told an error.
func (w *world) is(c *caller, want error) {
	w.t.Helper()
	synctest.Wait()
	assert.ErrorIs(w.t, c.err, want, "a caller was told")
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// Broken by a member that gets the token of another, and by one that gave up and is served.
func TestMembersHaveTheLockOneAfterTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all, attempt := w.cohort(4)
		w.grant(attempt, 11, 14)
		w.has(all[0], 11)
		if g, asked := all[0].member.Grant(); g.Token != 14 || asked != 42 {
			t.Errorf("%+v, asked at %v", g, asked)
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
		all[3].member.Leave(false)
		w.finish(attempt)
		if len(w.live) > 0 {
			t.Errorf("%v are left", w.live)
		}
	})
}

// Broken by a member that is served although the database is about to show the one before it as the
// holder.
func TestALockThatIsSplitIsNotPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all, attempt := w.cohort(3)
		w.grant(attempt, 11, 13)
		told := make(chan protocol.Detachment, 1)
		outcome := make(chan bool)
		done := all[0].member.Split(func(d protocol.Detachment) bool { told <- d; return <-outcome })
		d := <-told
		if d.Token != 11 || d.Thread != "thread of "+all[0].attempt ||
			d.Behind.Members != 2 || d.Behind.Thread != "thread of "+all[1].attempt {
			t.Errorf("%+v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		released := make(chan bool, 1)
		go func() {
			passed, _ := all[0].member.Pass(ctx)
			released <- passed
		}()
		w.has(all[1], 0)
		if len(released) > 0 {
			t.Error("released before it is known which token the database has")
		}
		outcome <- true
		if <-done; <-released {
			t.Error("passed on")
		}
		all[0].member.Leave(false)
		w.has(all[1], 0)
		w.grant(d.Behind.Attempt, 21, 22)
		w.has(all[1], 21)
		w.pass(all[1])
		w.has(all[2], 22)
		done = all[2].member.Split(func(d protocol.Detachment) bool {
			if d.Token != 22 || d.Behind.Members != 0 {
				t.Errorf("%+v", d)
			}
			return true
		})
		<-done
		if all[2].member.Split(nil) != nil {
			t.Error("the only holder is split off again")
		}
	})
}

// Broken by a heartbeat that has the database show a member which has passed the lock on meanwhile:
// the one that has it then would be lost. And by one that it has show what is being released.
func TestAMemberThatHasPassedTheLockOnIsNotSplitOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all, attempt := w.cohort(2)
		w.grant(attempt, 11, 12)
		for i, c := range all {
			assert.Equal(t, w.pass(c), (i == 0), i, "has passed it on")
			if done := c.member.Split(func(protocol.Detachment) bool { return true }); done != nil {
				t.Errorf("%d is split off", i)
			}
		}
		all[1].member.Leave(false)
	})
}

// Broken by a member that has got its turn when it gives up, and keeps it: the name stands still
// for as long as its session lives.
func TestAMemberThatGivesUpAtItsTurnPassesTheLockOn(t *testing.T) {
	for what, behind := range map[string]int{"to the next member": 1, "back, as the last member": 0} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				all, attempt := w.cohort(1 + behind)
				w.q.config.GaveUp = func(_ Session, _ string, _ bool, cause error) error {
					w.deliver(attempt, 11, 11+int64(behind))
					return cause
				}
				all[0].cancel()
				w.is(all[0], context.Canceled)
				if behind > 0 {
					w.has(all[1], 12)
				} else if w.live[attempt] || w.q.Busy(w.in, "n") {
					t.Error("no member has it, and it is not given back")
				}
			})
		})
	}
}

// Broken by requests that do not wait for those of their session that have the name: each would
// stand in the queue alone from then on; and by requests that wait for longer than that is worth.
func TestRequestsLingerWhileTheirSessionHasTheName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lingers := func() time.Duration {
			began := time.Now()
			w.q.linger(w.in, "n")
			return time.Since(began)
		}
		if d := lingers(); d != 0 {
			t.Errorf("lingers for %v while nobody has the name", d)
		}
		all, attempt := w.cohort(2)
		w.grant(attempt, 1, 2)
		assert.Equal(t, lingers(), lingerWhileHeld, "lingers for")
		time.AfterFunc(lingerWhileHeld/5, func() { all[0].member.Leave(false) })
		if d := lingers(); d != lingerWhileHeld/5+lingerAfterRelease {
			t.Errorf("lingers for %v while the name was held for %v", d, lingerWhileHeld/5)
		}
		if d := lingers(); d != 0 || w.q.Busy(w.in, "n") {
			t.Errorf("lingers for %v after the end", d)
		}
		w.is(all[1], store.ErrAgain)
	})
}

// Broken by a name that stays busy after its only request: a goroutine that locks it in a loop
// would linger each time.
func TestARequestWithoutOthersLeavesItsNameFree(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
			return protocol.Grant{First: 1, Token: 1}, protocol.Done, nil
		}
		began := time.Now()
		c := w.ask(protocol.Request{})
		w.has(c, 1)
		if w.pass(c) {
			t.Error("somebody else has the lock")
		}
		if c.member.Leave(false); w.q.Busy(w.in, "n") || time.Since(began) != 0 {
			t.Errorf("the name is busy after %v", time.Since(began))
		}
	})
}

// Broken by requests that share a place although they differ, or their owner may be in the way of
// others: the database shows the first member alone.
func TestOnlyPlainRequestsShareAPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		answer := make(chan struct{})
		w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
			<-answer
			return protocol.Grant{}, protocol.Queued, nil
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
		if got := fmt.Sprint(members); got != "[1 1 1 1 1 1 2]" {
			t.Errorf("joined by %s members: want the first, five that are not plain, and two together", got)
		}
		r := protocol.Request{Name: "n"}
		if plain(&r, true) || !plain(&r, false) {
			t.Error("what an owner asks for that holds something is plain, or nothing is")
		}
	})
}

// Broken by a place that is left in the queue, or given up while somebody waits there.
func TestTheLastMemberThatGivesUpGivesUpThePlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all, attempt := w.cohort(2)
		before := len(w.abandoned)
		all[0].cancel()
		synctest.Wait()
		assert.Equal(t, len(w.abandoned), before, "the place is given up, and one waits there")
		all[1].cancel()
		synctest.Wait()
		if len(w.abandoned) != before+1 || w.live[attempt] || !w.in.hub.Empty() {
			t.Errorf("%v are abandoned, and %v waits", w.abandoned, !w.in.hub.Empty())
		}
		w.grant(attempt, 1, 2) // too late
		if w.q.Busy(w.in, "n") {
			t.Error("it has the lock all the same")
		}
	})
}

// Broken by a grant that counts twice: two members would have the lock.
func TestAGrantThatIsToldTwiceServesOneMember(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		all, attempt := w.cohort(2)
		w.grant(attempt, 11, 12)
		w.has(all[0], 11)
		all[0].member.cohort.answered(wait.Result{Granted: true, Grant: protocol.Grant{First: 11, Token: 12}})
		w.has(all[1], 0)
	})
}

// Broken by a request that is granted before its own statement is answered, and given back then.
func TestAGrantMayComeBeforeTheAnswer(t *testing.T) {
	for _, plain := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			answer := make(chan protocol.Outcome)
			w.join = func(_ context.Context, r protocol.Request) (protocol.Grant, protocol.Outcome, error) {
				return protocol.Grant{First: 11, Token: 11}, <-answer, nil
			}
			r := protocol.Request{}
			if !plain {
				r.Units, r.Of = 1, 2
			}
			c := w.ask(r)
			w.grant(c.attempt, 11, 11) // before its own statement is answered
			answer <- protocol.Done
			w.has(c, 11)
			if len(w.abandoned) > 0 || w.pass(c) {
				t.Errorf("abandoned: %v", w.abandoned)
			}
			c.member.Leave(false)
		})
	}
}

// Broken by a statement whose error ends the lock that a member has.
func TestAnAnswerThatIsLostAfterTheGrantChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lost := make(chan error)
		w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
			return protocol.Grant{}, 0, <-lost
		}
		c := w.ask(protocol.Request{})
		w.grant(c.attempt, 11, 11)
		w.has(c, 11)
		lost <- errors.New("the connection broke")
		synctest.Wait()
		if !w.live[c.attempt] {
			t.Error("what it has is given back")
		}
		c.member.Leave(false)
	})
}

// Broken by an error that leaves what the statement may still do in the database.
func TestAStatementWithoutAnAnswerIsAbandoned(t *testing.T) {
	broke := errors.New("the connection broke")
	raced := driver.Fail(driver.ErrRetry, errors.New("a race"))
	for err, abandoned := range map[error]int{broke: 1, raced: 0, errRefused: 0} {
		for _, lease := range []time.Duration{0, time.Second} {
			inBubble(t, func(t *testing.T, w *world) {
				w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
					return protocol.Grant{}, 0, err
				}
				c := w.ask(protocol.Request{Lease: lease})
				w.is(c, err)
				if len(w.abandoned) != abandoned || len(w.live) > 0 || !w.in.hub.Empty() {
					t.Errorf("%v: abandoned %v, and %v are left", err, w.abandoned, w.live)
				}
			})
		}
	}
}

// Broken by members that are served before it is known whether the transaction of UnlockTx was
// committed, or that wait in a queue in which they are not.
func TestMembersBehindATransactionWaitForItsOutcome(t *testing.T) {
	for outcome, committed := range map[string]bool{"commit": true, "rollback": false} {
		t.Run(outcome, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				all, attempt := w.cohort(3)
				w.grant(attempt, 11, 13)
				d := all[0].member.SplitTx()
				if again := all[0].member.SplitTx(); again != d || d.Token != 11 || d.Behind.Members != 2 {
					t.Errorf("%+v, and again %+v", d, again)
				}
				if w.pass(all[0]) {
					t.Error("passed on in memory")
				}
				w.has(all[1], 0)
				all[0].member.Leave(committed)
				if !committed {
					w.is(all[1], store.ErrAgain)
					w.is(all[2], store.ErrAgain)
					return
				}
				w.grant(d.Behind.Attempt, 21, 22)
				w.has(all[1], 21)
			})
		})
	}
}

// Broken by a call that waits in vain.
func TestWhatEndsTheWaiting(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.ask(protocol.Request{Lease: lease})
			w.end()
			w.is(c, store.ErrSessionOver)
		})
		inBubble(t, func(t *testing.T, w *world) {
			c := w.ask(protocol.Request{Lease: lease})
			c.cancel()
			w.is(c, context.Canceled)
			assert.Equal(t, c.err.Error(), "queued true: context canceled", c.err)
		})
	}
}

// Broken by a request that is sent with more members than a cohort may have.
func TestACohortHasAnEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		answer := make(chan struct{})
		w.join = func(context.Context, protocol.Request) (protocol.Grant, protocol.Outcome, error) {
			<-answer
			return protocol.Grant{}, protocol.Queued, nil
		}
		w.ask(protocol.Request{})
		for range maxMembers + 1 {
			w.begin(protocol.Request{})
		}
		synctest.Wait()
		close(answer)
		synctest.Wait()
		if n := len(w.joined); n != 3 || w.joined[1].Members != maxMembers || w.joined[2].Members != 1 {
			t.Errorf("%d statements, the last with %+v", n, w.joined[n-1])
		}
	})
}
