package client

import "time"

// Stats returns what the client knows of itself, without I/O.
func (c *Client) Stats() Stats {
	now := c.config.Clock.Now()
	s := Stats{EventsDropped: c.history.dropped.Load()}
	s.Held, s.OldestHold = c.registry.count(now)
	if in := c.sessions.Alive(); in != nil {
		s.Session, s.AliveUntil = in.ID, time.Now().Add(in.Deadline()-now)
		s.Listening, s.Waiting = in.Waiters().Listening(), int(c.waiting.Load())
	}
	return s
}

// count is how many holds there are, and the age of the oldest without a watch over its progress.
func (r *registry) count(now time.Duration) (n int, oldest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.holds {
		if h.progress.Load() == nil {
			oldest = max(oldest, now-h.began)
		}
	}
	return len(r.holds), oldest
}
