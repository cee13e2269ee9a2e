package session

import "time"

// trusted returns until when a session is trusted after a heartbeat that was sent at sent and was
// answered now. The margin covers clocks that differ in rate, and the way of a statement that is
// sent just before the deadline: on a path as slow as that of the heartbeat it arrives before the
// lease ends in the database.
func (s *Session) trusted(sent time.Duration) time.Duration {
	roundTrip := s.config.Clock.Now() - sent
	margin := s.config.TTL/driftShare + 2*roundTrip
	return sent + s.config.TTL - min(margin, s.config.TTL/4)
}

// extend moves the deadline, unless it has passed.
func (s *Session) extend(sent time.Duration) {
	if !s.deadline.Move(s.trusted(sent)) {
		s.end(ErrExpired)
	}
}

// watch ends the session at its deadline. It reads the clock more often than necessary, because
// timers stop while the machine sleeps.
func (s *Session) watch() {
	timer := s.config.Clock.NewTimer(s.config.TTL)
	defer timer.Stop()
	for s.Alive() {
		timer.Reset(min(s.Deadline()-s.config.Clock.Now(), s.config.TTL/20))
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
	}
}
