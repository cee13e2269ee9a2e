package session

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// sideConnShare limits how many heartbeat intervals a use of a side connection may take: one to get
// a connection, one for its work.
const sideConnShare = 2

// OnSideConn runs do on a connection of the engine's own. A statement of do may wait for a row,
// because heartbeats do not use that connection. After sideConnShare intervals OnSideConn returns
// an error: its caller may hold a pool connection in a transaction while it waits here for another
// one, and must release it before long. OnSideConn also returns an error when the session ends
// during do. When the session had ended before, it returns the reason. After ErrUnavailable it
// checks the session at once.
func (s *Session) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	within, cancel := context.WithTimeout(ctx, sideConnShare*s.config.TTL/beatsPerTTL)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := s.engine.OnSideConn(within, do)
	if errors.Is(err, driver.ErrUnavailable) {
		s.Check()
	}
	return err
}
