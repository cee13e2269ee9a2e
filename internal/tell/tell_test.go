package tell

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// Broken by a goroutine for each delivery, and by one that never ends.
func TestWhatIsToldIsDeliveredInOrderAndNothingRunsAfterwards(t *testing.T) {
	before := leak.Running()
	synctest.Test(t, func(t *testing.T) {
		q := New(nil)
		var got, want []int
		for i := range 300 {
			if i%100 == 0 {
				q.Add(func() { time.Sleep(time.Minute) })
			}
			q.Add(func() { got = append(got, i) })
			if want = append(want, i); i%100 == 99 { // the goroutine ends in between
				time.Sleep(time.Hour)
				synctest.Wait()
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("delivered: %v", got)
		}
		assert.NoError(t, leak.Find(before))
	})
}

// Broken by a queue without a bound, and by one that does not say what it left out.
func TestWhatDoesNotFitIsLeftOutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		q := New(func(n int) { got = append(got, -n) })
		stuck := make(chan struct{})
		q.Add(func() { <-stuck })
		synctest.Wait()
		for i := range most + 7 {
			q.Add(func() { got = append(got, i) })
		}
		close(stuck)
		synctest.Wait()
		q.Add(func() { got = append(got, most+7) })
		Flush(q)
		if len(got) != most+2 || got[most-1] != most-1 || got[most] != -7 || got[most+1] != most+7 {
			t.Errorf("%d delivered, the last of them %v", len(got), got[max(0, len(got)-3):])
		}
	})
}

// Broken by a goroutine that ends with the first of them, and by one that repeats it.
func TestACallThatEndsItsGoroutineSilencesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		q := New(nil)
		for i := range 9 {
			q.Add(func() {
				if got = append(got, i); i%4 == 0 {
					runtime.Goexit()
				}
			})
		}
		Flush(q)
		q.Add(func() { got = append(got, 9) })
		began := time.Now()
		if Flush(q); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) || time.Since(began) != 0 {
			t.Errorf("made after %v: %v", time.Since(began), got)
		}
	})
}

func TestFlushGivesUpAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, other := New(nil), New(nil)
		end, delivered := make(chan struct{}), false
		stuck.Add(func() { <-end })
		other.Add(func() { delivered = true })
		began := time.Now()
		if Flush(stuck, nil, other); time.Since(began) != flushTimeout {
			t.Errorf("it took %v", time.Since(began))
		}
		if synctest.Wait(); !delivered {
			t.Error("one queue waits for the other")
		}
		close(end)
	})
}

// slow is a handler all of whose methods wait.
type slow struct {
	slog.Handler
	wait func()
}

func (s slow) Enabled(ctx context.Context, l slog.Level) bool {
	s.wait()
	return s.Handler.Enabled(ctx, l)
}

func (s slow) Handle(ctx context.Context, r slog.Record) error {
	s.wait()
	return s.Handler.Handle(ctx, r)
}

func (s slow) WithAttrs(a []slog.Attr) slog.Handler { return slow{s.Handler.WithAttrs(a), s.wait} }
func (s slow) WithGroup(name string) slog.Handler   { return slow{s.Handler.WithGroup(name), s.wait} }

// Broken by asking the handler whether it is enabled, and by a record that is not cloned.
func TestALoggerThatBlocksIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		stuck := make(chan struct{})
		to := slow{slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string,
			a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}), sync.OnceFunc(func() { <-stuck })}
		log, q := Logger(slog.New(to))
		if again, same := Logger(log.With("a", 1)); same != q || again.Handler().(handler).queue != q {
			t.Error("a logger with a queue gets another one")
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		log.DebugContext(ctx, "nothing")
		synctest.Wait() // it is being delivered
		log.With("a", 1).WithGroup("g").With("b", 2).InfoContext(ctx, "first", "c", 3)
		log.Warn("second", "1", 1, "2", 2, "3", 3, "4", 4, "5", 5, "6", 6, "7", 7)
		cancel()
		if time.Since(began) != 0 || lines.Len() > 0 {
			t.Errorf("it took %v, and wrote %s", time.Since(began), &lines)
		}
		for range most {
			log.Debug("nothing")
		}
		close(stuck)
		Flush(q)
		want := "level=INFO msg=first a=1 g.b=2 g.c=3\n" +
			"level=WARN msg=second 1=1 2=2 3=3 4=4 5=5 6=6 7=7\n" +
			`level=WARN msg="dblock: log entries were left out: the logger was too slow for them" entries=2` + "\n"
		if lines.String() != want {
			t.Errorf("it wrote\n%s", &lines)
		}
	})
}
