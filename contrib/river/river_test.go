package riverlock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/dblock-go/dblock"
	riverlock "github.com/dblock-go/dblock/contrib/river"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// waiter works a charge until its context ends, or until the test sends something.
type waiter struct {
	river.WorkerDefaults[charge]
	began chan struct{}
	cause chan error
}

func (w waiter) Work(ctx context.Context, _ *river.Job[charge]) error {
	w.began <- struct{}{}
	select {
	case <-ctx.Done():
		w.cause <- context.Cause(ctx)
		return ctx.Err()
	case <-w.cause:
		return nil
	}
}

// setting is a River client that works, and what it tells.
type setting struct {
	queue
	waiter
	events <-chan *river.Event
}

// run runs a River client with a limit until the end of the test.
func (d database) run(t *testing.T, limit *riverlock.Middleware) setting {
	s := setting{waiter: waiter{began: make(chan struct{}, 1), cause: make(chan error, 1)}}
	w := river.NewWorkers()
	river.AddWorker(w, s.waiter)
	s.queue = d.river(t, config(w, limit))
	var stop func()
	s.events, stop = s.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobSnoozed)
	t.Cleanup(stop)
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(func() { assert.NoError(t, s.StopAndCancel(context.Background())) })
	return s
}

func (s setting) insert(t *testing.T) {
	require.NoError(t, require.ErrOf(s.Insert(t.Context(), charge{"42"}, nil)))
}

// next is the next event of a kind.
func (s setting) next(t *testing.T, kind river.EventKind) *river.Event {
	t.Helper()
	for {
		if e := receive(t, s.events); e.Kind == kind {
			return e
		}
	}
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}

func one(*rivertype.JobRow) riverlock.Limit { return riverlock.Limit{Key: "customer/42", Permits: 1} }

func limit(t *testing.T, client dblock.Locker, of func(*rivertype.JobRow) riverlock.Limit) *riverlock.Middleware {
	m, err := riverlock.New(client, prefix, of, riverlock.Snooze(50*time.Millisecond))
	require.NoError(t, err)
	return m
}

var permitOf42 = dblock.Name(prefix, "customer/42")

func TestAJobWithoutAPermitIsSnoozedUntilThereIsOne(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		for what, taken := range map[string]dblock.LockOption{"the permit is taken": dblock.Permits(1, 1),
			"the name is in other use": dblock.Shared()} {
			c := d.client(t)
			other, err := c.Lock(t.Context(), permitOf42, taken)
			require.NoError(t, err, what)
			s := d.run(t, limit(t, d.client(t).Locker(), one))
			s.insert(t)
			s.next(t, river.EventKindJobSnoozed)
			assert.NoError(t, other.Unlock(t.Context()), what)
			receive(t, s.began)
			s.cause <- nil
			if e := s.next(t, river.EventKindJobCompleted); e.Job.Attempt != 1 {
				t.Errorf("%s: attempt %d: a snooze counts as one", what, e.Job.Attempt)
			}
			assert.NoError(t, s.StopAndCancel(t.Context()), what)
		}
	})
}

func TestAJobIsToldThatItsPermitIsLost(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := d.run(t, limit(t, d.client(t).Locker(), one))
		s.insert(t)
		receive(t, s.began)
		c := d.client(t)
		n, err := c.Break(t.Context(), permitOf42, "test")
		// On a busy machine a try may take longer than the TTL.
		for tries := 1; errors.Is(err, dblock.ErrUnavailable) && tries < 10; tries++ {
			n, err = c.Break(t.Context(), permitOf42, "test")
		}
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		assert.ErrorIs(t, receive(t, s.cause), dblock.ErrLost, "the cause is")
		if e := s.next(t, river.EventKindJobFailed); len(e.Job.Errors) != 1 {
			t.Errorf("River knows %v", e.Job.Errors)
		}
	})
}

// direct is the function that River calls, over a database without River.
func direct(
	t *testing.T,
) (*dblock.Client[*sql.Tx], func(of riverlock.Limit, work func(ctx context.Context) error) error) {
	c := newDatabase(t, dbtest.KindSQLite).client(t)
	return c, func(of riverlock.Limit, work func(ctx context.Context) error) error {
		m := limit(t, c.Locker(), func(*rivertype.JobRow) riverlock.Limit { return of })
		return m.Work(t.Context(), &rivertype.JobRow{}, work)
	}
}

func TestAJobThatReturnsAfterALossHasFailed(t *testing.T) {
	c, work := direct(t)
	err := work(riverlock.Limit{Key: "customer/42", Permits: 1}, func(context.Context) error {
		_, err := c.Break(t.Context(), permitOf42, "test")
		return err
	})
	assert.ErrorIs(t, err, dblock.ErrLost)
}

func TestWhatTheJobReturnsIsPassedOn(t *testing.T) {
	c, work := direct(t)
	broken := errors.New("broken")
	for _, want := range []error{nil, broken, river.JobSnooze(time.Hour)} {
		if err := work(riverlock.Limit{Key: "customer/42", Permits: 1},
			func(context.Context) error { return want }); err != want {
			t.Errorf("%v, not %v", err, want)
		}
	}
	func() {
		defer func() { assert.Equal(t, recover(), "boom", "a panic did not pass through") }()
		_ = work(riverlock.Limit{Key: "customer/42", Permits: 1}, func(context.Context) error { panic("boom") })
	}()
	l, err := c.TryLock(t.Context(), permitOf42)
	require.NoError(t, err)
	defer l.Unlock(t.Context())
	if err := work(riverlock.Limit{}, func(context.Context) error { return broken }); err != broken {
		t.Errorf("without a limit: %v", err)
	}
}

// Under a permit's context an owner would wait for itself.
func TestAJobUnderThePermitOfAnotherIsSnoozed(t *testing.T) {
	c, _ := direct(t)
	outer, err := c.Lock(t.Context(), permitOf42, dblock.Permits(1, 1))
	require.NoError(t, err)
	defer outer.Unlock(t.Context())
	var snooze *river.JobSnoozeError
	err = limit(t, c.Locker(), one).Work(outer.Context(), &rivertype.JobRow{},
		func(context.Context) error { return nil })
	if !errors.As(err, &snooze) || snooze.Duration < 25*time.Millisecond || snooze.Duration >= 75*time.Millisecond {
		t.Error(err)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	c, work := direct(t)
	new := func(client dblock.Locker, prefix string, of func(*rivertype.JobRow) riverlock.Limit,
		options ...riverlock.Option) error {
		_, err := riverlock.New(client, prefix, of, options...)
		return err
	}
	for what, err := range map[string]error{
		"no client":     new(nil, prefix, one),
		"no prefix":     new(c.Locker(), "", one),
		"no function":   new(c.Locker(), prefix, nil),
		"a nil option":  new(c.Locker(), prefix, one, nil),
		"a snooze of 0": new(c.Locker(), prefix, one, riverlock.Snooze(0)),
		"a limit of no permits": work(riverlock.Limit{Key: "customer/42"}, func(context.Context) error {
			t.Error("it ran")
			return nil
		}),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalidOption, what)
	}
}
