package dblocktest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/observe"
)

// log is what a job and an observer have told, each with its time since the log began.
type log struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func newLog() *log { return &log{began: time.Now()} }

func (l *log) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, time.Since(l.began).Round(time.Second).String()+" "+text)
}

func (l *log) expect(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.lines, want) {
		t.Errorf("%q\nwant %q", l.lines, want)
	}
}

// every begins a loop, and returns what ends it.
func every(
	t *testing.T, f *dblocktest.Fake[*Tx], interval time.Duration, job func(ctx context.Context, slot time.Time) error,
	options ...jobs.Option,
) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- jobs.New(f.Client).Every(ctx, "job", interval, func(ctx context.Context, _ *dblock.Lock,
			slot time.Time) error {
			return job(ctx, slot)
		}, options...)
	}()
	return func() error { cancel(); return <-ended }
}

func TestEveryRunsEachSlotOnceOverAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := dblocktest.New[*Tx](t)
		b := a.Another(t)
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(90 * time.Minute))) // half past
		runs := newLog()
		job := func(_ context.Context, slot time.Time) error { runs.add(slot.UTC().Format("15:04")); return nil }
		stops := []func() error{every(t, a, time.Hour, job), every(t, b, time.Hour, job)}
		time.Sleep(3 * time.Hour)
		for _, stop := range stops {
			assert.NoError(t, stop())
		}
		first := runs.began.UTC().Truncate(time.Hour)
		var want []string
		for i, after := range []string{"0s ", "30m0s ", "1h30m0s ", "2h30m0s "} {
			want = append(want, after+first.Add(time.Duration(i)*time.Hour).Format("15:04"))
		}
		runs.expect(t, want...)
	})
}

func TestEveryTriesAgainAfterABackoffThatDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		runs, trouble := newLog(), errors.New("trouble")
		job := func(context.Context, time.Time) error { runs.add("run"); return trouble }
		stop := every(t, f, 24*time.Hour, job, jobs.RetryFailed(2, time.Minute))
		time.Sleep(10 * time.Minute)
		assert.NoError(t, stop())
		runs.expect(t, "0s run", "1m0s run", "3m0s run")
		f, runs = dblocktest.New[*Tx](t), newLog()
		stop = every(t, f, 24*time.Hour, job, jobs.RetryFailed(2, 0))
		time.Sleep(time.Minute)
		assert.NoError(t, stop())
		runs.expect(t, "0s run", "0s run", "0s run")
	})
}

func TestEverySurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		f.Down()
		var runs sync.Map
		stop := every(t, f, time.Minute, func(_ context.Context, slot time.Time) error {
			runs.Store(slot, true)
			return nil
		})
		time.Sleep(5 * time.Minute)
		f.Up()
		time.Sleep(2 * time.Minute)
		assert.NoError(t, stop())
		n := 0
		runs.Range(func(any, any) bool { n++; return true })
		if n != 2 && n != 3 {
			t.Errorf("it ran %d slots after the outage", n)
		}
	})
}

func TestEveryEndsWhereItCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		job := func(context.Context, *dblock.Lock, time.Time) error { return nil }
		assert.ErrorIs(t, jobs.New(f.Client).Every(t.Context(), "job", time.Millisecond, job), dblock.ErrInvalidOption)
		assert.ErrorIs(t, jobs.New(f.Client).Every(t.Context(), "job", time.Second, job, jobs.RetryFailed(0, 0)),
			dblock.ErrInvalidOption)
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- jobs.New(f.Client).Every(context.Background(), "job", time.Hour, job) }()
		time.Sleep(time.Second)
		assert.NoError(t, f.Client.Close(t.Context()))
		if err := <-ended; !errors.Is(err, dblock.ErrClosed) || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestAnObserverIsToldOfRunsAndOfSlotsThatWereLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, trouble := newLog(), errors.New("trouble")
		f := dblocktest.New[*Tx](t, dblock.WithObserver(observe.All(observe.Observer{}, observe.Observer{
			RunEnd: func(r observe.RunResult) {
				if r.Name != "job" || !r.Slot.Equal(r.Slot.Truncate(time.Minute)) {
					t.Errorf("%+v", r)
				}
				if errors.Is(r.Err, trouble) {
					told.add("failed")
				} else {
					told.add("ran for " + r.Took.String())
				}
			},
			SlotsLeftOut: func(s observe.LeftOut) {
				if s.Skipped > 0 {
					told.add("skipped")
				}
				if s.Missed == 2 {
					told.add("missed 2")
				}
			},
		})))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		told.began = time.Now()
		run := func(takes time.Duration, err error) {
			if ran, got := jobs.New(f.Client).OncePer(t.Context(), "job", time.Minute,
				func(context.Context, *dblock.Lock, time.Time) error {
					time.Sleep(takes)
					return err
				}); !ran || !errors.Is(got, err) {
				t.Error(ran, got)
			}
		}
		run(time.Second, nil)
		time.Sleep(time.Minute)
		run(90*time.Second, trouble) // in the second slot, until the third has half gone by
		run(0, nil)                  // in the third
		time.Sleep(3 * time.Minute)
		run(61*time.Second, nil) // nobody asked in two
		time.Sleep(time.Minute)  // one went by during the run
		run(0, nil)
		synctest.Wait()
		told.expect(t, "1s ran for 1s", "2m31s failed", "2m31s ran for 0s", "5m31s missed 2", "6m32s ran for 1m1s",
			"7m32s skipped", "7m32s ran for 0s")
	})
}
