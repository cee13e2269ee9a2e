package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/testlog"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/reaper"
)

var telling = inPlaces(flowing{
	{"a logger and an observer that block for ever delay no heartbeat, no hand-over, no loss and no Close",
		toldForEver},
})

// tellsStuck are the options of a client that tells code which blocks until the test ends of
// everything.
func tellsStuck(t *testing.T) []dblock.Option {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return []dblock.Option{
		dblock.WithLogger(testlog.Stuck(end)), dblock.WithReaper(reaper.OnReport(func(reaper.Report) { <-end })),
		dblock.WithObserver(observe.Observer{
			AcquireEnd: func(context.Context, observe.Attempt, observe.AcquireResult) { <-end },
			HoldEnd:    func(observe.HoldResult) { <-end }, RunEnd: func(observe.RunResult) { <-end },
			SlotsLeftOut: func(observe.LeftOut) { <-end }, Heartbeat: func(time.Duration, error) { <-end },
			Listener: func(bool, error) { <-end },
		}),
	}
}

func toldForEver(t *testing.T, e *env) {
	a, b := e.client(t, tellsStuck(t)...), e.client(t)
	var locks []*dblock.Lock
	for i := range 12 {
		locks = append(locks, lock(t, a, fmt.Sprint("held ", i)))
	}
	waiter := e.line(t, "held 0", 1, []Client{b}, background)
	unlock(t, locks[0])
	unlock(t, granted(t, soon, waiter[0]))
	per(t, a, "job", time.Hour, true)
	ended(t, patience, lock(t, b, "three TTLs", dblock.Lease(3*longTTL)), dblock.ErrLost)
	for _, l := range locks[1:] {
		live(t, l)
	}
	e.end(t, e.session(t, "held 1"))
	for _, l := range locks[1:] {
		ended(t, soon, l, dblock.ErrLost)
		unlock(t, granted(t, soon, locking(t.Context(), b, l.Name())))
	}
	again := lock(t, a, "held 0")
	closed := async(func() error { return a.Close(context.Background()) })
	assert.NoError(t, within(t, soon, "Close returns", closed))
	ended(t, soon, again, dblock.ErrClosed)
	unlock(t, lock(t, b, "held 0"))
}
