//go:build unix

package fault

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

const bugTwoLeaders = "elects without looking whether another leads"

func init() { bugs[bugTwoLeaders] = alone(recordsUnseen) }

// recordsUnseen grants locks unseen, and lets pass what only a holder may do. Without that a lock
// that was granted wrongly is found out before the term begins.
func recordsUnseen(ctx context.Context, c *fakedb.Call) error {
	if !c.Moves() {
		return grantsUnseen(ctx, c)
	}
	err := c.Do(ctx)
	if errors.Is(err, driver.ErrNotHeld) {
		c.Outcome(protocol.Undone)
		return nil
	}
	return err
}

// twoLeaders has two candidates, who both lead.
func twoLeaders(w *world) {
	b := &ballot{world: w}
	leaders := []*process{b.launch("one", "campaign"), b.launch("two", "campaign")}
	for _, p := range leaders {
		p.await(firstCrewOp+1, evHeld)
	}
	for _, p := range leaders {
		before := p.count(evEnding)
		eventually(w, p.label+" goes on leading", func() bool { return p.count(evEnding) >= before+3 })
	}
	w.exclusive(leaders...)
}
