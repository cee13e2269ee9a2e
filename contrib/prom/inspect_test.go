package dblockprom_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dblock-go/dblock"
	dblockprom "github.com/dblock-go/dblock/contrib/prom"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// names are held, each with so many waiters, who came an hour ago, or a minute later for each name
// before.
type names map[string]int

func (n names) List(_ context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		since := time.Now().Add(-time.Hour)
		for _, name := range slices.Sorted(maps.Keys(n)) {
			info := inspect.Info{Name: name, Holders: []inspect.Participant{{Host: "h"}}, Queued: n[name]}
			if info.Queued > 0 {
				info.Waiters = []inspect.Participant{{Since: since}, {Since: time.Now()}}
				since = since.Add(time.Minute)
			}
			if (info.Queued > 0 || !f.Contended) && !yield(info, nil) {
				return
			}
		}
	}
}

// lister is a database that is asked.
type lister struct {
	names  names
	err    error // in place of the third name
	mu     sync.Mutex
	asked  int // how often it was
	shown  int // how many names
	within time.Duration
	hangs  bool
}

func (l *lister) List(ctx context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked++
		deadline, _ := ctx.Deadline()
		l.within = time.Until(deadline)
		if l.hangs {
			<-ctx.Done()
			yield(inspect.Info{}, ctx.Err())
			return
		}
		for info := range l.names.List(ctx, f) {
			l.shown++
			if l.err != nil && l.shown == 3 {
				yield(inspect.Info{}, l.err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func many(n, waiters int) names {
	all := names{}
	for i := range n {
		all[fmt.Sprint("name ", i)] = waiters
	}
	return all
}

func inspected(t *testing.T, of dblockprom.Lister, bounds dblockprom.Inspection) prometheus.Gatherer {
	t.Helper()
	c := dblockprom.New("")
	require.NoError(t, c.Inspect(of, bounds))
	return registry(t, c)
}

func TestNothingIsReadUnlessItIsAskedFor(t *testing.T) {
	r := registry(t, dblockprom.New("orders"))
	assert.Equal(t, value(t, r, "dblock_inspection_success"), -1, "success")
}

func TestAnInspectionReadsNoMoreThanItsNames(t *testing.T) {
	for _, c := range []struct {
		names, with, allowed      int
		shown                     int // at most
		truncated, held, contends float64
	}{
		{names: 10, with: 1, allowed: 10, shown: 20, truncated: 0, held: 10, contends: 10},
		{names: 10, with: 0, allowed: 9, shown: 10, truncated: 1, held: 9, contends: 0},
		{names: 5000, with: 2, allowed: 0, shown: 2002, truncated: 1, held: 1000, contends: 1000},
	} {
		l := &lister{names: many(c.names, c.with)}
		r := inspected(t, l, dblockprom.Inspection{Names: c.allowed})
		for name, want := range map[string]float64{
			"dblock_inspection_truncated": c.truncated, "dblock_names_held": c.held,
			"dblock_names_contended": c.contends, "dblock_longest_queue_waiters": float64(c.with),
		} {
			if got := value(t, r, name); got != want {
				t.Errorf("%d names, of which %d may be read: %s is %v, want %v", c.names, c.allowed, name, got, want)
			}
		}
		if l.shown > c.shown || l.asked != 2 {
			t.Errorf("%d names, of which %d may be read: read %d, by %d questions", c.names, c.allowed, l.shown,
				l.asked)
		}
	}
}

// queue is a name with candidates of an election before a waiter.
type queue struct{}

func (queue) List(context.Context, inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		now := time.Now()
		yield(inspect.Info{Name: "n", Queued: 3, Waiters: []inspect.Participant{
			{Candidate: true, Since: now.Add(-time.Hour)}, {Candidate: true, Since: now.Add(-time.Hour)},
			{Since: now.Add(-time.Minute)},
		}}, nil)
	}
}

func TestCandidatesAreNoWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inspected(t, queue{}, dblockprom.Inspection{})
		assert.Equal(t, value(t, r, "dblock_longest_queue_waiters"), 1, "the longest queue")
		assert.Equal(t, value(t, r, "dblock_oldest_waiter_seconds"), 60, "the oldest waiter")
	})
}

func TestScrapesInQuickSuccessionReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lister{names: names{"a": 1, "b": 3}}
		r := inspected(t, l, dblockprom.Inspection{Every: time.Minute})
		var scrapes sync.WaitGroup
		for range 5 {
			scrapes.Go(func() { value(t, r, "dblock_names_held") })
		}
		scrapes.Wait()
		assert.Equal(t, l.asked, 2, "questions")
		time.Sleep(30 * time.Second)
		if age := value(t, r, "dblock_oldest_waiter_seconds"); age != 3630 || l.asked != 2 {
			t.Errorf("after half a minute: %v s old, %d questions", age, l.asked)
		}
		l.names["b"] = 9
		time.Sleep(30 * time.Second)
		if longest := value(t, r, "dblock_longest_queue_waiters"); longest != 9 || l.asked != 4 {
			t.Errorf("after a minute: the longest queue has %v, %d questions", longest, l.asked)
		}
	})
}

func TestAnInspectionThatFailsSaysSoAndShowsNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		l := &lister{names: many(5, 1)}
		r := inspected(t, l, dblockprom.Inspection{Every: time.Second, Timeout: 3 * time.Second,
			Failed: func(err error) { told = append(told, err) }})
		if got := value(t, r, "dblock_inspection_success"); got != 1 || len(told) > 0 || l.within != 3*time.Second {
			t.Fatalf("success %v, told %v, within %v", got, told, l.within)
		}
		for _, broken := range []struct {
			err   error
			hangs bool
			want  error
			took  float64
		}{
			{err: dblock.ErrUnavailable, want: dblock.ErrUnavailable},
			{hangs: true, want: context.DeadlineExceeded, took: 3},
		} {
			time.Sleep(time.Second)
			l.err, l.hangs, l.shown, told = broken.err, broken.hangs, 0, nil
			assert.Equal(t, value(t, r, "dblock_inspection_success"), 0, broken.want, "success")
			assert.Equal(t, value(t, r, "dblock_inspection_duration_seconds"), broken.took, broken.want, "it took")
			for _, name := range []string{"dblock_names_held", "dblock_names_contended", "dblock_longest_queue_waiters",
				"dblock_oldest_waiter_seconds", "dblock_inspection_truncated"} {
				assert.Equal(t, value(t, r, name), -1, broken.want, name)
			}
			if len(told) != 1 || !errors.Is(told[0], broken.want) {
				t.Errorf("told %v, want %v once", told, broken.want)
			}
		}
	})
}

func TestAnInspectionRefusesWhatCannotBe(t *testing.T) {
	c := dblockprom.New("orders")
	for name, err := range map[string]error{
		"no client":        c.Inspect(nil, dblockprom.Inspection{}),
		"names below 0":    c.Inspect(names{}, dblockprom.Inspection{Names: -1}),
		"a timeout before": c.Inspect(names{}, dblockprom.Inspection{Timeout: -1}),
		"every -1 ns":      c.Inspect(names{}, dblockprom.Inspection{Every: -1}),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalidOption, name)
	}
	assert.Equal(t, value(t, registry(t, c), "dblock_inspection_success"), -1, "success")
}
