package client

import (
	"time"
)

// Stats returns the figures of the client, without I/O.
func (c *Client) Stats() Stats {
	now := c.config.Clock.Now()
	s := Stats{EventsDropped: c.history.Dropped()}
	s.Held, s.OldestHold = c.ledger.Count(now)
	if in := c.sessions.Alive(); in != nil {
		s.Session, s.AliveUntil = in.ID, time.Now().Add(in.Deadline()-now)
		s.Listening, s.Waiting = in.Waiters().Listening(), c.queues.Waiting()
	}
	return s
}
