package client

import "time"

// Stats returns what the client knows of itself, without I/O.
func (c *Client) Stats() Stats {
	s := Stats{Held: c.registry.count(), EventsDropped: c.history.dropped.Load()}
	c.backing.stats(&s)
	return s
}

func (t *tables) stats(s *Stats) {
	in := t.sessions.alive()
	if in == nil {
		return
	}
	s.Session, s.AliveUntil = in.ID, time.Now().Add(in.Deadline()-t.config.Clock.Now())
	s.Listening, s.Waiting = in.hub.Stats()
}

func (n native) stats(s *Stats) { s.Waiting = int(n.waiting.Load()) }

// count is how many holds there are.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holds)
}
