package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
)

var errDenied = driver.Refused(errors.New("permission denied"))

// denied is a database that refuses looks, or takeovers and corrections.
type denied struct {
	*table
	looks, takeovers, recounts int
	sees                       bool
}

func (d *denied) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	if d.looks++; !d.sees {
		return nil, errDenied
	}
	return d.table.Read(ctx, session, names, waiters)
}

func (d *denied) Recount(context.Context, string) (protocol.Result, error) {
	d.recounts++
	return protocol.Result{}, errDenied
}

func (d *denied) Sweep(context.Context) bool { return false }

func (d *denied) TakeOver(context.Context, string, protocol.Holder) (protocol.Result, error) {
	d.takeovers++
	return protocol.Result{}, errDenied
}

// Broken by pauses that stay short.
func TestWhatIsRefusedForGoodIsTriedAtASlowPace(t *testing.T) {
	for what, c := range map[string]struct {
		left    time.Duration // of the holder
		waiters int           // that the row counts
	}{"look": {}, "takeover": {0, 1}, "recount": {time.Hour, 0}} {
		synctest.Test(t, func(t *testing.T) {
			d := &denied{table: &table{states: map[string]driver.State{}, hints: make(chan protocol.Hint),
				broken: make(chan struct{})}, sees: what != "look"}
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			h := New(ctx, d, me, Config{
				Client: quietClient{},
				Clock:  clock.Func(func() time.Duration { return time.Since(began) }),
				Log:    quiet, Hearing: outage.New(quiet, ""), Looking: outage.New(quiet, ""), Taking: outage.New(quiet,
					""),
				Safety: safety, Limit: time.Minute,
			})
			d.queue("n", c.left, "a1")
			is := d.states["n"]
			is.Waiters = c.waiters
			d.states["n"] = is
			h.enter("n", "a1")
			time.Sleep(100 * safety)
			synctest.Wait()
			tries := map[string]int{"look": d.looks, "takeover": d.takeovers, "recount": d.recounts}
			if n := tries[what]; n < 90 || n > 250 {
				t.Errorf("each %s is refused: %v in %v", what, tries, 100*safety)
			}
			cancel()
			h.Wait()
		})
	}
}
