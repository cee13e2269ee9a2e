package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/wait"
)

// worthwhile is how many members must have had the lock before a run is settled, for the name to be
// granted in runs at once again.
const worthwhile = 2

// settleRun makes the present member of a run a plain holder. It is repeated until an answer is
// known, since a run never goes on once that was sent. Without a present member the database has
// taken the run.
func (c *Client) settleRun(ctx context.Context, s *clientSession, r *wait.Run, present driver.Own, served int) {
	if present.Attempt == "" {
		c.disband(s, r)
		return
	}
	singly := served < worthwhile
	if singly {
		c.registry.noteSlow(r.Name, c.config.Clock.Now())
	}
	for tries := 1; ctx.Err() == nil; tries++ {
		err := c.statement(ctx, func(ctx context.Context) error {
			return c.engine.Settle(ctx, driver.Held{Name: r.Name, Session: s.ID, Token: present.Grant.Token}, singly)
		})
		switch {
		case err == nil:
			c.settling.Worked()
			c.registry.settled(present.Attempt, r.End())
			return
		case errors.Is(err, driver.ErrNotHeld):
			c.disband(s, r)
			return
		case !c.transient(err) && ctx.Err() == nil:
			c.settling.Failed(err, "name", r.Name)
		}
		pause(ctx, min(time.Duration(tries)*5*time.Millisecond, 500*time.Millisecond))
	}
}

// disband ends a run that the database has taken from its session: its present member has lost the
// lock, and what the database still has of it and of those before it is given back; of a member
// that departed, when that is unlocked. Those behind it wait where they did.
func (c *Client) disband(s *clientSession, r *wait.Run) {
	present := r.Disown()
	if h := c.registry.held(present.Attempt); h != nil {
		c.lose(h, errDisowned)
	}
	if c.begin() == nil {
		c.dropRun(s, r)
		if k := c.registry.known(r.Name, present.Attempt); present.Attempt != "" && c.registry.state(k) != Departed {
			c.abandon(s, k, false)
		}
		c.done()
	}
	s.hub.Recheck(r.Name)
}
