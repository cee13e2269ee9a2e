package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/reaper"
)

// written is a log that was written by several goroutines.
type written struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// lines returns what was written since the last call.
func (w *written) lines() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.text.String()) {
		lines = append(lines, line)
	}
	w.text.Reset()
	return lines
}

// Broken by a line for each failure.
func TestAnOutageOfHalfAMinuteIsAFewLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := &written{}, newPaper()
		c := newPaperClient(t, p, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(w, nil))
			c.Events, c.Reap, c.Reaper = true, true, []reaper.Option{reaper.Interval(time.Second)}
		})
		l := acquire(t, t.Context(), c, "held")
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if waited, err := c.Acquire(ctx, new(want("held")), true); err == nil {
				_ = waited.Unlock(t.Context())
			}
		}()
		time.Sleep(time.Minute)
		if lines := w.lines(); len(lines) != 0 {
			t.Errorf("in normal operation:\n%s", strings.Join(lines, ""))
		}
		p.leave()
		time.Sleep(30 * time.Second)
		lines := w.lines()
		began := map[string]int{}
		for _, line := range lines {
			for _, what := range []string{
				"heartbeat fails", "connecting for heartbeats fails", "listening for grants fails",
				"looking for grants fails",
				"looking for deadlocks fails", "writing events fails", "a sweep fails", "lock lost",
			} {
				if strings.Contains(line, what) {
					began[what]++
				}
			}
		}
		for what, n := range began {
			if n > 3 { // at 0, 10 and 30 s
				t.Errorf("%d lines with %q", n, what)
			}
		}
		if len(began) != 7 || len(lines) > 20 {
			t.Errorf("%d kinds of lines: %v\n%s", len(began), began, strings.Join(lines, ""))
		}
		p.comeBack()
		<-l.Context().Done()
		p.Locks.Delete("held")
		l = acquire(t, t.Context(), c, "other")
		time.Sleep(time.Minute)
		lines = w.lines()
		for _, line := range lines {
			if !strings.Contains(line, "works again\" after=") && !strings.Contains(line, "1 sessions expired") {
				t.Errorf("after the outage: %s", line)
			}
		}
		if len(lines) < 3 || len(lines) > 8 {
			t.Errorf("after the outage:\n%s", strings.Join(lines, ""))
		}
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

// Broken by an Unlock that tries a hundred times a second.
func TestAnUnlockWithoutADatabaseIsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		c := newPaperClient(t, p, func(*Config) {})
		l := acquire(t, t.Context(), c, "n")
		p.leave()
		before := p.link.Asked()
		unlocked := make(chan error)
		go func() { unlocked <- l.Unlock(t.Context()) }()
		time.Sleep(10 * time.Second)
		if n := p.link.Asked() - before; n < 20 || n > 150 {
			t.Errorf("%d statements in ten seconds", n)
		}
		p.comeBack()
		assert.NoError(t, <-unlocked)
	})
}

// Broken by a line for each lock.
func TestTheLossOfAThousandLocksIsAFewLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := &written{}, newPaper()
		c := newPaperClient(t, p, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(w, nil)) })
		for i := range 1000 {
			acquire(t, t.Context(), c, fmt.Sprint(i))
		}
		p.leave()
		time.Sleep(time.Minute)
		p.comeBack()
		named, more := 0, 0
		for _, line := range w.lines() {
			if strings.Contains(line, "lock lost") {
				named++
			}
			if strings.Contains(line, "more locks lost") && strings.Contains(line, "locks=990") {
				more++
			}
		}
		if named != 10 || more != 1 {
			t.Errorf("%d locks are named, %d lines tell of the others", named, more)
		}
	})
}

func TestAClientThatPollsSaysSoAtDebugOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := &written{}, newPaper()
		p.deaf = true
		c := newPaperClient(t, p, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		first := acquire(t, t.Context(), c, "n")
		go func() {
			time.Sleep(10 * time.Second)
			_ = first.Unlock(t.Context())
		}()
		second := acquire(t, t.Context(), c, "n")
		if s := c.Stats(); s.Listening {
			t.Errorf("%+v", s)
		}
		assert.NoError(t, second.Unlock(t.Context()))
		if lines := w.lines(); len(lines) != 1 || !strings.Contains(lines[0], "level=DEBUG") ||
			!strings.Contains(lines[0], "polling for grants") {
			t.Errorf("%q", lines)
		}
	})
}
