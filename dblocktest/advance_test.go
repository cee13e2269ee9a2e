package dblocktest_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAClientThatReachesTheDatabaseKeepsItsLocksHoweverMuchTimeGoesBy(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held, read := take(t, f.Client, "n"), take(t, f.Client, "r", dblock.Shared())
		f.Advance(2 * time.Hour)
		has(t, held)
		has(t, read)
		isTaken(t, f.Another(t).Client, "n")
	})
}

// Broken by a clock that moves while a heartbeat is in flight, which is late then: the client
// warns, and listens on another connection.
func TestAdvanceLogsNoWarning(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		var said warnings
		log := dblock.WithLogger(slog.New(&said))
		f := dblocktest.New[*Tx](t, log)
		second := f.Another(t, log)
		for i, ahead := range []time.Duration{time.Second, time.Hour, 24 * time.Hour, 20 * time.Second} {
			held := take(t, f.Client, "n")
			waits := taking(t, second.Client, "n", func(lock) {})
			f.AwaitQueue(t, "n", 1)
			take(t, f.Client, fmt.Sprint("other ", i), dblock.Lease(ahead/2))
			f.Advance(ahead)
			has(t, held)
			assert.NoError(t, held.Unlock(t.Context()))
			assert.NoError(t, got(t, waits).Unlock(t.Context()))
		}
		for _, c := range []*dblock.Client[*Tx]{f.Client, second.Client} {
			assert.NoError(t, c.Close(t.Context())) // it writes the log
		}
		said.Lock()
		defer said.Unlock()
		for _, line := range said.lines {
			t.Error(line)
		}
	})
}

// warnings keeps what a client logs at the level of warnings and above.
type warnings struct {
	sync.Mutex
	lines []string
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.Lock()
	defer w.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.lines = append(w.lines, line)
	return nil
}

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *warnings) WithGroup(string) slog.Handler { return w }

func TestAProcessThatIsCutOffLosesItsLocksBeforeAnotherHasThem(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		second := f.Another(t)
		held := take(t, f.Client, "n")
		waits := taking(t, second.Client, "n", func(lock) { hasLost(t, held) })
		f.AwaitQueue(t, "n", 1)
		f.Down()
		f.Advance(f.Client.TTL() - time.Second)
		has(t, held)
		f.Advance(time.Second)
		hasLost(t, held)
		if next := got(t, waits); next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
		f.Up()
		take(t, f.Client, "m")
		isTaken(t, f.Client, "n")
	})
}

func TestAFixedLeaseEndsBeforeAnotherHasTheName(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		second := f.Another(t)
		held, other := take(t, f.Client, "n", dblock.Lease(time.Hour)), take(t, f.Client, "m")
		waits := taking(t, second.Client, "n", func(lock) { hasLost(t, held) })
		f.AwaitQueue(t, "n", 1)
		f.Advance(50 * time.Minute)
		has(t, held)
		f.Advance(10 * time.Minute)
		hasLost(t, held)
		has(t, other)
		has(t, got(t, waits))
	})
}

func TestAFixedLeaseCountsFromTheGrantHoweverLongItWasWaitedFor(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		release := f.Hold(t, "n")
		first := taking(t, f.Client, "n", func(lock) {}, dblock.Lease(time.Hour))
		f.AwaitQueue(t, "n", 1)
		second := taking(t, f.Another(t).Client, "n", func(lock) {})
		f.AwaitQueue(t, "n", 2)
		f.Advance(2 * time.Hour)
		release()
		l := got(t, first)
		has(t, l)
		isTaken(t, f.Client, "n")
		assert.NoError(t, l.Unlock(context.Background()))
		has(t, got(t, second))
	})
}

func TestAFixedLeaseEndsWithoutAConnectionBeforeAnotherHasTheName(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t, dblock.WithTTL(time.Hour))
		second := f.Another(t)
		held := take(t, f.Client, "n", dblock.Lease(time.Minute))
		waits := taking(t, second.Client, "n", func(lock) { hasLost(t, held) })
		f.AwaitQueue(t, "n", 1)
		f.Down()
		second.Advance(time.Minute)
		hasLost(t, held)
		has(t, got(t, waits))
	})
}

func TestAFixedLeaseThatWasUnlockedDoesNotEndAgain(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n", dblock.Lease(time.Minute))
		assert.NoError(t, held.Unlock(t.Context()))
		next := take(t, f.Client, "n")
		f.Advance(time.Hour)
		has(t, next)
	})
}

func TestAdvanceByNothingDoesNothing(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		f.Advance(0)
		f.Advance(-time.Hour)
		has(t, held)
	})
}

func TestTimeMayGoOnFromSeveralGoroutines(t *testing.T) {
	inBothWorlds(t, func(t *testing.T) {
		f := dblocktest.New[*Tx](t)
		held := take(t, f.Client, "n")
		done := make(chan struct{})
		for range 3 {
			go func() {
				f.Advance(f.Client.TTL())
				done <- struct{}{}
			}()
		}
		for range 3 {
			<-done
		}
		has(t, held)
	})
}
