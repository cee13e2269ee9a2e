package dblocktest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// watched is a session that a client has opened.
type watched struct {
	*session.Session
	line *line
	lost chan struct{} // closed when the client has ended all locks of the session
}

// opened is called with each session of the process.
func (l *line) opened(s *session.Session) (lost func()) {
	w := &watched{Session: s, line: l, lost: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients[s.ID] = w
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.clients, s.ID)
		close(w.lost)
	}
}

// advance moves the clock forward. Outside a bubble it does so in strides, none longer than the
// time between two heartbeats of a client.
func (d *database) advance(by time.Duration) {
	d.advancing <- struct{}{}
	defer func() { <-d.advancing }()
	if d.inBubble() {
		time.Sleep(by)
		synctest.Wait()
		return
	}
	for left := by; left > 0; {
		step := d.stride(left)
		d.Move(step)
		left -= step
		connected, over := d.living()
		for _, w := range over {
			w.Stop(session.ErrExpired)
			<-w.lost
		}
		for _, w := range connected {
			w.beat()
		}
		d.mu.Lock()
		d.reap()
		d.mu.Unlock()
	}
}

// Advance implements Fake.Advance.
func (l *line) Advance(by time.Duration) { l.advance(by) }

// Micros returns the time of the database's clock.
func (l *line) Micros() int64 { return l.now() }

// stride returns how far the clock may move at once: to the next alarm, to the end of the trust in
// a session without a connection, and to the next heartbeat of one with a connection.
func (d *database) stride(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	most = min(most, d.NextAlarm())
	for _, w := range d.clients {
		left := w.Deadline() - d.Now()
		if s := d.sessions[w.ID]; s != nil && !w.line.down() {
			left = max(left*4/5, s.TTL/100)
		}
		most = min(most, left)
	}
	return max(most, time.Microsecond)
}

// living returns the sessions with a connection, and those that have expired.
func (d *database) living() (connected, over []*watched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.clients {
		switch {
		case w.Deadline() <= d.Now():
			over = append(over, w)
		case !w.line.down():
			connected = append(connected, w)
		}
	}
	return connected, over
}

// beat sends a heartbeat of the session, and makes the client compare its locks.
func (w *watched) beat() {
	_ = w.Ping(context.Background()) // a heartbeat that fails ends the session, or does not reach the database
	w.Check()
}
