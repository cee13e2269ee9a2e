//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

const bugTwoLeaders = "elects without looking whether another leads"

func init() {
	bugs[bugTwoLeaders] = func(b driver.Backend, _ *sql.DB) driver.Backend { return recordsUnseen{grantsUnseen{b}} }
}

// recordsUnseen lets pass what only a holder may do. Without it a lock that was granted wrongly is
// found out before the term begins.
type recordsUnseen struct{ driver.Backend }

func (b recordsUnseen) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Other: b.other}.Run(ctx, b.Backend, ops...)
}

func (b recordsUnseen) other(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	result, err := driver.Do(ctx, b.Backend, op)
	if errors.Is(err, driver.ErrNotHeld) {
		err = nil
	}
	return result, err
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
