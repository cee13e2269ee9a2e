package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/clock"
)

// queueing is a queue whose answers come when they may.
type queueing struct {
	driver.Queue
	may     chan struct{}
	outcome driver.Outcome
	err     error

	mu    sync.Mutex
	calls [][]driver.Request
}

func (q *queueing) Enqueue(_ context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	q.mu.Lock()
	q.calls = append(q.calls, rs)
	q.mu.Unlock()
	<-q.may
	return driver.Grant{Token: 7}, q.outcome, q.err
}

// joinAll has so many requests join the queue of a name, one after the other, and returns what came
// of each once the queue has answered all.
func joinAll(t *testing.T, q *queueing, n int) (answers []joined, errs []error) {
	q.may = make(chan struct{})
	j := newJoins(q, newCalls(time.Hour), clock.Func(func() time.Duration { return 0 }), nil)
	answers, errs = make([]joined, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := &driver.Request{Name: "n", Attempt: fmt.Sprint(i)}
			of := j.of(r)
			defer j.done(r)
			answers[i], errs[i] = of.Do(t.Context(), r)
		})
		synctest.Wait()
	}
	close(q.may)
	all.Wait()
	if len(j.names) != 0 {
		t.Errorf("%d names are still known", len(j.names))
	}
	return answers, errs
}

func TestRequestsThatJoinAQueueTogetherKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{outcome: driver.Queued}
		answers, errs := joinAll(t, q, 6)
		if len(q.calls) != 2 || len(q.calls[0]) != 1 {
			t.Fatalf("sent as %d statements: %v", len(q.calls), q.calls)
		}
		for i, r := range append(q.calls[0], q.calls[1]...) {
			if r.Attempt != fmt.Sprint(i) || answers[i].outcome != driver.Queued || errs[i] != nil {
				t.Errorf("%d: %s, %+v %v", i, r.Attempt, answers[i], errs[i])
			}
		}
	})
}

// Broken by telling all of them that they have the lock.
func TestOneOfThoseThatJoinTogetherGetsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, _ := joinAll(t, &queueing{outcome: driver.Granted}, 6)
		for i, a := range answers {
			want := joined{outcome: driver.Queued}
			if i < 2 { // the first of each statement
				want = joined{outcome: driver.Granted, grant: driver.Grant{Token: 7}}
			}
			if a != want {
				t.Errorf("%d: %+v, want %+v", i, a, want)
			}
		}
	})
}

func TestThoseThatJoinTogetherFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, errs := joinAll(t, &queueing{err: driver.ErrBusy}, 3)
		for i, err := range errs {
			if err != driver.ErrBusy {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// Broken by sending the first of them alone, by waiting for longer than others are ahead, or than
// the limit, or by waiting for a run that the request cannot be part of, or with a context that
// ends soon.
func TestRequestsLingerWhileOthersOfTheirSessionAreAhead(t *testing.T) {
	for _, c := range []struct {
		ahead  int // beside the requests
		rivals bool
		alone  bool          // the requests are not passable
		brief  bool          // their contexts end soon
		over   time.Duration // when nothing is ahead any more
		sent   time.Duration
		batch  int
	}{
		{ahead: 0, rivals: true, sent: 0, batch: 1},
		{ahead: 1, rivals: false, sent: 0, batch: 1},
		{ahead: 1, rivals: true, alone: true, sent: 0, batch: 1},
		{ahead: 1, rivals: true, brief: true, sent: 0, batch: 1},
		{ahead: 1, rivals: true, over: 2500 * time.Microsecond, sent: 2600*time.Microsecond + lingerPause, batch: 3}, // nobody comes just then
		{ahead: 1, rivals: true, over: time.Second, sent: lingerLimit + lingerPause, batch: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*lingerLimit-time.Millisecond)
			defer cancel()
			if !c.brief {
				ctx = t.Context()
			}
			q := &queueing{outcome: driver.Queued, may: make(chan struct{})}
			close(q.may)
			var asked atomic.Int32
			j := newJoins(q, newCalls(time.Hour), clock.Func(func() time.Duration { return time.Since(began) }), func(string) (int, bool) {
				if time.Since(began) < c.over || c.over == 0 {
					return int(asked.Load()) + c.ahead, c.rivals
				}
				return int(asked.Load()), c.rivals
			})
			var sent time.Duration
			var all sync.WaitGroup
			for i := range 4 { // one a millisecond
				all.Go(func() {
					asked.Add(1) // first, as the hub knows of a waiter before it joins
					defer asked.Add(-1)
					r := &driver.Request{Name: "n", Attempt: fmt.Sprint(i), Passable: !c.alone}
					of := j.of(r)
					defer j.done(r)
					done, alone := j.alone(ctx, r, of)
					if alone {
						_, _, _ = q.Enqueue(t.Context(), *r)
						done()
					} else if _, err := of.Do(t.Context(), r); err != nil {
						t.Error(err)
					}
					if i == 0 {
						sent = time.Since(began)
					}
				})
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			if len(q.calls[0]) != c.batch || sent != c.sent {
				t.Errorf("%+v: %d requests were sent after %v", c, len(q.calls[0]), sent)
			}
		})
	}
}

// Broken by asking what is ahead before the users are counted. A request that comes in between
// would count as a user only.
func TestARequestThatComesMeanwhileEndsNoLingering(t *testing.T) {
	var j *joins
	r := &driver.Request{Name: "n", Passable: true}
	came := make(chan struct{})
	j = newJoins(nil, newCalls(time.Hour), nil, func(string) (int, bool) {
		go func() {
			defer close(came)
			j.of(r)
		}()
		select {
		case <-came:
		case <-time.After(50 * time.Millisecond): // it waits for the count
		}
		return 2, true
	})
	if of := j.of(r); !j.lingers("n", of) {
		t.Error("it lingers no more")
	}
	<-came
}

// Broken by a release that does not wait for the requests that are joining the queue: the next run
// would lack them. Broken also by a release that waits although another session wants the name, or
// that waits without a limit.
func TestTheReleaseOfARunWaitsForThoseWhoJoin(t *testing.T) {
	for _, c := range []struct {
		rivals         bool
		answered, want time.Duration
	}{
		{answered: lingerLimit / 2, want: lingerLimit / 2},
		{answered: time.Second, want: lingerLimit},
		{answered: time.Second, rivals: true, want: 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &queueing{outcome: driver.Queued, may: make(chan struct{})}
			j := newJoins(q, newCalls(time.Hour), clock.Func(func() time.Duration { return 0 }), func(string) (int, bool) { return 0, c.rivals })
			j.drain(t.Context(), "n") // nobody joins
			go func() {
				r := &driver.Request{Name: "n"}
				of := j.of(r)
				defer j.done(r)
				_, _ = of.Do(t.Context(), r)
			}()
			synctest.Wait()
			began := time.Now()
			time.AfterFunc(c.answered, func() { close(q.may) })
			j.drain(t.Context(), "n")
			if took := time.Since(began); took != c.want {
				t.Errorf("%+v: took %v", c, took)
			}
			<-q.may
		})
	}
}
