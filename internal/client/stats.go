package client

import (
	"time"
)

// Stats returns the figures of the client, without I/O.
func (c *Client) Stats() Stats {
	now := c.config.Clock.Now()
	s := Stats{EventsDropped: c.report.history.Dropped()}
	s.Held, s.OldestHold = c.ledger.Count(now)
	if in := c.sessions.Alive(); in != nil {
		s.Session, s.AliveUntil = in.ID, time.Now().Add(in.Deadline()-now)
		s.Listening = in.Waiters().Listening()
		s.Waiting, s.Candidates = c.ledger.Waiting()
	}
	return s
}
