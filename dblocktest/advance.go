package dblocktest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/session"
)

// database is one in memory, with the clients that use it.
type database struct {
	*memory.DB
	advancing chan struct{}       // a token: one Advance at a time
	clients   map[string]*watched // by session, while it lives; the mutex of DB protects them
}

func newDatabase() *database {
	return &database{DB: memory.NewDB(), advancing: make(chan struct{}, 1), clients: map[string]*watched{}}
}

// inBubble reports whether the clock is that of a bubble of testing/synctest, whose time begins
// with the year 2000.
func (d *database) inBubble() bool { return d.Began().Year() < 2020 }

// link is how one process reaches the database. It is the engine of that process.
type link struct {
	*memory.Link
	of   *database
	core *client.Client // of the process
}

func newLink(d *database) *link { return &link{Link: memory.NewLink(d.DB), of: d} }

// watched is a session that a client has opened.
type watched struct {
	*session.Session
	link *link
	lost chan struct{} // closed when the client has ended all locks of the session
}

// opened is called with each session of the process.
func (l *link) opened(s *session.Session) (lost func()) {
	w := &watched{Session: s, link: l, lost: make(chan struct{})}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.of.clients[s.ID] = w
	return func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		delete(l.of.clients, s.ID)
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
	connected, _ := d.living()
	for _, w := range connected {
		w.beat()
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
		d.Mu.Lock()
		d.Reap()
		d.Mu.Unlock()
	}
}

// Advance implements Fake.Advance.
func (l *link) Advance(by time.Duration) { l.of.advance(by) }

// stride returns how far the clock may move at once: to the next alarm, to the end of the trust in
// a session without a connection, and to the next heartbeat of one with a connection.
func (d *database) stride(most time.Duration) time.Duration {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	most = min(most, d.NextAlarm())
	for _, w := range d.clients {
		left := w.Deadline() - d.Now()
		if s := d.SessionRows[w.ID]; s != nil && !w.link.Down() {
			left = max(left*4/5, s.TTL/100)
		}
		most = min(most, left)
	}
	return max(most, time.Microsecond)
}

// living returns the sessions with a connection, and those that have expired.
func (d *database) living() (connected, over []*watched) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, w := range d.clients {
		switch {
		case w.Deadline() <= d.Now():
			over = append(over, w)
		case !w.link.Down():
			connected = append(connected, w)
		}
	}
	return connected, over
}

// settleLimit bounds the wait for a client that was cut off meanwhile. A client on a busy machine
// needs less.
const settleLimit = 10 * time.Second

// beat sends a heartbeat of the session, and waits until it is answered and the client has compared
// its locks. A heartbeat in flight while the clock moves would be late for the client, which would
// warn and listen on another connection.
func (w *watched) beat() {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	w.Settle(ctx)
}
