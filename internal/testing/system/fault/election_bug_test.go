//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

const bugTwoLeaders = "elects without looking whether another leads"

func init() {
	bugs[bugTwoLeaders] = func(b driver.Backend, _ *sql.DB) driver.Backend { return recordsUnseen{grantsUnseen{b}} }
}

// recordsUnseen lets pass what only a holder may do. Without it a lock that was granted wrongly is
// found out before the term begins.
type recordsUnseen struct{ driver.Backend }

func (b recordsUnseen) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	next, err := b.Backend.Change(ctx, how, transition)
	if errors.Is(err, driver.ErrNotHeld) {
		err = nil
	}
	return next, err
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
