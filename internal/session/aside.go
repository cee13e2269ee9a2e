package session

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/driver"
)

// asideShare is how many intervals between two heartbeats an aside may take: one to get a
// connection, one for its work.
const asideShare = 2

// Aside runs do on a connection of the engine's own, while the heartbeats go on beside it: a
// statement of do may wait for a row. It takes no longer than asideShare intervals, so that a
// caller whose transaction keeps a connection of the pool, and waits here for another one, gives
// its own back before long: then it returns an error. So it does when the session ends; after that
// it returns the reason. A connection that broke is a reason to look at the session at once.
func (s *Session) Aside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	within, cancel := context.WithTimeout(ctx, asideShare*s.config.TTL/beatsPerTTL)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.store.Beside(within, do)
	if errors.Is(err, driver.ErrUnavailable) {
		s.Check()
	}
	return err
}
