package client

import "time"

// Stats returns what the client knows of itself, without I/O.
func (c *Client) Stats() Stats {
	s := Stats{Held: c.registry.count(), EventsDropped: c.history.dropped.Load()}
	if in := c.sessions.alive(); in != nil {
		s.Session, s.AliveUntil = in.ID, time.Now().Add(in.Deadline()-c.config.Clock.Now())
		s.Listening, s.Waiting = in.hub.Listening(), int(c.waiting.Load())
	}
	return s
}

// count is how many holds there are.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holds)
}
