//go:build unix

package fault

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
)

const bugTwoLeaders = "elects without looking whether another leads"

func init() {
	bugs[bugTwoLeaders] = func(b driver.Backend, _ *sql.DB) driver.Backend { return recordsUnseen{grantsUnseen{b}} }
}

// recordsUnseen writes what only a holder may write. Without it a lock that was granted wrongly is
// found out before the term begins.
type recordsUnseen struct{ driver.Backend }

func (b recordsUnseen) Announce(ctx context.Context, _ driver.Held, e driver.Event) error {
	return b.Record(ctx, []driver.Event{e})
}

func TestTwoLeadersAreNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.SQLite(t))
	b := &ballot{world: w, ttl: ttl}
	var leaders []*process
	for _, label := range []string{"one", "two"} {
		p := b.launch(label, "campaign", func(c *actorConfig) { c.Bug = bugTwoLeaders })
		p.await(firstCrewOp+1, evHeld)
		leaders = append(leaders, p)
	}
	for _, p := range leaders {
		before := p.count(evEnding)
		eventually(w, p.label+" goes on leading", func() bool { return p.count(evEnding) >= before+3 })
	}
	if found := overlaps(leaders...); len(found) == 0 {
		t.Error("nobody noticed")
	}
}
