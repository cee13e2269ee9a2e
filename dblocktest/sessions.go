package dblocktest

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

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
func (l *line) Upkeep(ctx context.Context) (driver.Upkeep, error) {
	return upkeep{l}, l.do(ctx, func() error { return nil })
}

func (l *line) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return ask(ctx, l, func() (bool, error) {
		s := l.sessions[session]
		if s == nil || s.dead {
			return false, nil
		}
		s.expires = max(s.expires, l.now()+micros(ttl))
		return true, nil
	})
}

func (l *line) Attend(string, time.Duration) (leave func()) { return func() {} }

func (l *line) Beside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return do(ctx, upkeep{l})
}

// upkeep is a line as the connection for heartbeats.
type upkeep struct{ *line }

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.Beat(ctx, session, ttl)
}

func (u upkeep) Claims(ctx context.Context, session string) ([]driver.Claim, error) {
	return ask(ctx, u.line, func() ([]driver.Claim, error) { return u.claims(session), nil })
}

func (u upkeep) Close() error { return nil }

// claims is what a session holds, and its places in queues, in the order of the names.
func (d *database) claims(session string) (claims []driver.Claim) {
	for _, is := range d.sorted() {
		n := d.locks[is]
		for _, h := range n.holders() {
			if h.session == session {
				claims = append(claims, driver.Claim{Name: is, Attempt: h.attempt, Token: h.token, Asked: h.asked})
			}
		}
		for _, p := range n.queue {
			if p.Session == session {
				claims = append(claims, driver.Claim{Name: is, Attempt: p.Attempt, Token: p.token})
			}
		}
	}
	return claims
}

// alive reports whether a session lives, and its time is not over.
func (d *database) alive(id string) bool {
	s := d.sessions[id]
	return s != nil && !s.dead && s.expires > d.now()
}

// dead reports whether a session has been declared dead. One that is missing has been.
func (d *database) dead(id string) bool {
	s := d.sessions[id]
	return s == nil || s.dead
}

// left is until when a session lives; ≤ 0: it is over.
func (d *database) left(id string) time.Duration {
	if d.dead(id) {
		return -time.Hour
	}
	return microseconds(d.sessions[id].expires - d.now())
}

// expire ends a session whose time is over or that is missing, and reports whether it is dead now.
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
	return ask(ctx, l, func() (bool, error) { return l.expire(session), nil })
}

func (l *line) Expired(ctx context.Context, limit int) ([]string, error) {
	return ask(ctx, l, func() (ids []string, err error) {
		for id, s := range l.sessions {
			if !s.dead && s.expires <= l.now() || s.dead && len(l.claims(id)) > 0 {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int { return int(l.sessions[a].started - l.sessions[b].started) })
		return ids[:min(len(ids), limit)], nil
	})
}
