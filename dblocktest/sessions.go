package dblocktest

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// sessionRow is a session of a client.
type sessionRow struct {
	driver.Session
	started, expires int64
	dead             bool
}

func (l *line) OpenSession(ctx context.Context, s driver.Session) error {
	return l.do(ctx, func() error {
		now := l.now()
		l.sessions[s.ID] = &sessionRow{Session: s, started: now, expires: now + micros(s.TTL)}
		return nil
	})
}

func (l *line) EndSession(ctx context.Context, id string) error {
	return l.do(ctx, func() error {
		if s := l.sessions[id]; s != nil {
			s.dead = true
			if len(l.claims(id)) == 0 {
				delete(l.sessions, id)
			}
		}
		for _, watches := range l.watchers {
			for watch, session := range watches {
				if session == id {
					delete(watches, watch)
				}
			}
		}
		return nil
	})
}

// Upkeep reserves nothing: there is no connection.
func (l *line) Upkeep(ctx context.Context, _ string) (driver.Upkeep, error) {
	return upkeep{l}, l.ping(ctx)
}

func (l *line) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return get(ctx, l, func() bool {
		s := l.sessions[session]
		if s == nil || s.dead {
			return false
		}
		s.expires = max(s.expires, l.now()+micros(ttl))
		return true
	})
}

func (l *line) Attend(string, time.Duration) (leave func()) { return func() {} }

func (l *line) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return do(ctx, upkeep{l})
}

// upkeep is a line in the role of the connection for heartbeats.
type upkeep struct{ *line }

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.Beat(ctx, session, ttl)
}

func (u upkeep) Close() error { return nil }

// claims returns the locks of a session, and its places in queues, in the order of the names.
func (d *database) claims(session string) (claims []driver.Claim) {
	for _, name := range d.names.All() {
		for _, h := range d.holders(name) {
			if h.Session == session {
				claims = append(claims, driver.Claim{Name: name, Attempt: h.Attempt, Token: h.Token, Asked: h.Asked})
			}
		}
		for _, p := range d.names.Places(name) {
			if p.Session == session {
				claims = append(claims, driver.Claim{Name: name, Attempt: p.Attempt})
			}
		}
	}
	return claims
}

// alive reports whether a session is neither dead nor expired.
func (d *database) alive(id string) bool {
	s := d.sessions[id]
	return s != nil && !s.dead && s.expires > d.now()
}

// dead reports whether a session was declared dead. A missing session counts as dead.
func (d *database) dead(id string) bool {
	s := d.sessions[id]
	return s == nil || s.dead
}

// expiry returns when a session expires without another heartbeat; 0: it is dead.
func (d *database) expiry(id string) int64 {
	if d.dead(id) {
		return 0
	}
	return d.sessions[id].expires
}

// expire declares a session dead that has expired or is missing, and reports whether it is dead
// now.
func (d *database) expire(id string) bool {
	s := d.sessions[id]
	if s == nil {
		s = &sessionRow{Session: driver.Session{ID: id}, started: d.now(), dead: true}
		d.sessions[id] = s
	}
	s.dead = s.dead || s.expires <= d.now()
	return s.dead
}

func (l *line) Expire(ctx context.Context, session string) (bool, error) {
	return get(ctx, l, func() bool { return l.expire(session) })
}

func (l *line) Expired(ctx context.Context, limit int) ([]string, error) {
	return get(ctx, l, func() (ids []string) {
		for id, s := range l.sessions {
			if !s.dead && s.expires <= l.now() || s.dead && len(l.claims(id)) > 0 {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int { return int(l.sessions[a].started - l.sessions[b].started) })
		return ids[:min(len(ids), limit)]
	})
}
