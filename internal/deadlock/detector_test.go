package deadlock

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// script answers queries in turn, and repeats the last answer.
type script struct {
	mu      sync.Mutex
	asked   []time.Time
	about   [][]driver.Waiting
	answers []answer
}

type answer struct {
	waits []driver.Wait
	err   error
}

func (s *script) WaitGraph(_ context.Context, from []driver.Waiting) ([]driver.Wait, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.about = append(s.asked, time.Now()), append(s.about, from)
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return a.waits, a.err
}

func (s *script) queries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// first returns the places of the first query.
func (s *script) first() []driver.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about[0]
}

func start(t *testing.T, s *script) *Detector {
	ctx, cancel := context.WithCancel(context.Background())
	d := New(ctx, s, Config{Clock: clock.From(ctx), After: time.Second, Limit: time.Second,
		Report: outage.New(slog.New(slog.DiscardHandler), "")})
	t.Cleanup(func() { cancel(); d.Wait() })
	return d
}

func cycle() []driver.Wait {
	return new(world).has("a", "x").has("b", "y").wants("a", "y").wants("b", "x").waits
}

const victim, other = "b/x/false", "a/y/false"

func TestOnlyTheYoungestIsNotifiedAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{waits: cycle()}}}
		d := start(t, s)
		began := time.Now()
		o, v := d.Watch("n", other), d.Watch("n", victim)
		cycle := <-v.C
		if took := time.Since(began); len(cycle) != 2 || took < time.Second || took > 2*time.Second {
			t.Errorf("%v after %v", cycle, took)
		}
		select {
		case c := <-o.C:
			t.Errorf("the other is notified too: %v", c)
		case <-time.After(time.Minute):
		}
	})
}

func TestACycleThatIsGoneAtTheSecondLookIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{waits: cycle()}, {}}}
		v := start(t, s).Watch("n", victim)
		select {
		case c := <-v.C:
			t.Errorf("notified: %v", c)
		case <-time.After(time.Minute):
		}
	})
}

func TestManyWaitersShareOneQueryAtIntervalsThatDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{}}}
		d := start(t, s)
		for _, a := range []string{"a", "b", "c", "d"} {
			d.Watch("n", a)
		}
		time.Sleep(time.Minute)
		if n := s.queries(); n != 5 || len(s.first()) != 4 { // after 1, 3, 7, 15 and 31 s
			t.Errorf("%d queries, the first about %v", n, s.first())
		}
	})
}

func TestLongWaitersShareTheirQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{}}}
		d := start(t, s)
		for _, a := range []string{"a", "b", "c", "d"} {
			d.Watch("n", a)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := s.queries(); n != 4+2+3 { // each alone after 1 s; after 3 and 3.6 s; together after 7, 15 and 31 s
			t.Errorf("%d queries", n)
		}
	})
}

func TestALateWaiterIsNotDelayedByALongWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{}}}
		d := start(t, s)
		d.Watch("n", "old")
		time.Sleep(time.Hour + time.Minute) // it is due again in an hour
		s.mu.Lock()
		s.answers = []answer{{waits: cycle()}}
		s.mu.Unlock()
		began := time.Now()
		<-d.Watch("n", victim).C
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestAStuckWaiterThatIsNotTheYoungestIsCheckedAgainAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{waits: cycle()}}}
		start(t, s).Watch("n", other)
		time.Sleep(10*time.Second + time.Millisecond)
		assert.Equal(t, s.queries(), 10, "queries in 10 s")
	})
}

func TestAQueryThatFailedIsRepeatedAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{err: errors.New("away")}, {waits: cycle()}}}
		began := time.Now()
		<-start(t, s).Watch("n", victim).C
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestAForgottenWaiterIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{{}}}
		d := start(t, s)
		d.Forget(d.Watch("n", "a"))
		time.Sleep(time.Minute)
		if n := s.queries(); n > 0 {
			t.Errorf("%d queries", n)
		}
	})
}

func TestWithoutAnIntervalNothingRuns(t *testing.T) {
	d := New(context.Background(), nil, Config{Clock: clock.From(context.Background())})
	if w := d.Watch("n", "a"); w.C != nil {
		t.Error("it has a channel")
	}
	d.Wait()
}
