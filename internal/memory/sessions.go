package memory

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// SessionRow is a session of a client.
type SessionRow struct {
	driver.Session
	Started, Expires int64
	Dead             bool
	BuriedBy, Buried string // by which session, and why
}

func (l *Link) OpenSession(ctx context.Context, s driver.Session) error {
	return l.do(ctx, func() error {
		now := l.Micros()
		l.SessionRows[s.ID] = &SessionRow{Session: s, Started: now, Expires: now + micros(s.TTL)}
		return nil
	})
}

func (l *Link) EndSession(ctx context.Context, id string, empty bool) error {
	return l.do(ctx, func() error {
		if s := l.SessionRows[id]; s != nil {
			s.Dead = true
			if empty {
				delete(l.SessionRows, id)
			}
		}
		for _, watches := range l.WatchRows {
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
func (l *Link) Upkeep(ctx context.Context, _ string) (driver.Upkeep, error) {
	return upkeep{l, new(Walk)}, l.ping(ctx)
}

func (l *Link) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return get(ctx, l, func() bool {
		s := l.SessionRows[session]
		if s == nil || s.Dead {
			return false
		}
		s.Expires = max(s.Expires, l.Micros()+micros(ttl))
		return true
	})
}

func (l *Link) Attend(string, time.Duration) (leave func()) { return func() {} }

func (l *Link) Lending() context.Context { return context.Background() }

func (l *Link) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return do(ctx, upkeep{l, new(Walk)})
}

// upkeep is a link in the role of the connection for heartbeats.
type upkeep struct {
	*Link
	walk *Walk
}

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.Beat(ctx, session, ttl)
}

func (u upkeep) Claims(ctx context.Context, session string, known []driver.Claim) ([]driver.Claim, error) {
	claims, err := u.Link.Claims(ctx, session, driver.All)
	return u.walk.Step(claims, known), err
}

// Walk is a walk over all names in two steps, of an engine that otherwise lists known claims only.
type Walk struct{ steps int }

// Step returns the claims that an Upkeep lists, of all that a session has.
func (w *Walk) Step(claims, known []driver.Claim) []driver.Claim {
	if w.steps++; known == nil || w.steps%2 == 0 {
		return claims
	}
	return slices.DeleteFunc(claims, func(c driver.Claim) bool {
		return !slices.ContainsFunc(known, func(k driver.Claim) bool {
			return k.Name == c.Name && k.Attempt == c.Attempt && k.Token == c.Token
		})
	})
}

func (u upkeep) Close() error { return nil }

// ClaimsOf returns the locks of a session, and its places in queues, in the order of the names. It
// MUST be called with Mu locked.
func (d *DB) ClaimsOf(session string) []driver.Claim {
	return d.claims(func(id string) bool { return id == session })
}

// claims returns the locks and places of some sessions, in the order of the names.
func (d *DB) claims(of func(session string) bool) (claims []driver.Claim) {
	for _, name := range d.Locks.All() {
		for _, h := range d.Holders(name) {
			if of(h.Session) {
				claims = append(claims, driver.Claim{Session: h.Session, Name: name, Attempt: h.Attempt, Token: h.Token,
					Asked: h.Asked})
			}
		}
		for _, p := range d.Locks.Places(name) {
			if of(p.Session) {
				claims = append(claims, driver.Claim{Session: p.Session, Name: name, Attempt: p.Attempt})
			}
		}
	}
	return claims
}

// alive reports whether a session is neither dead nor expired.
func (d *DB) alive(id string) bool {
	s := d.SessionRows[id]
	return s != nil && !s.Dead && s.Expires > d.Micros()
}

// dead reports whether a session was declared dead. A missing session counts as dead.
func (d *DB) dead(id string) bool {
	s := d.SessionRows[id]
	return s == nil || s.Dead
}

// expiry returns when a session expires without another heartbeat; 0: it is dead.
func (d *DB) expiry(id string) int64 {
	if d.dead(id) {
		return 0
	}
	return d.SessionRows[id].Expires
}

// expire declares a session dead that has expired or is missing, and reports whether it is dead
// now.
func (d *DB) expire(id string) bool {
	s := d.SessionRows[id]
	if s == nil {
		s = &SessionRow{Session: driver.Session{ID: id}, Started: d.Micros(), Dead: true}
		d.SessionRows[id] = s
	}
	s.Dead = s.Dead || s.Expires <= d.Micros()
	return s.Dead
}

func (l *Link) Expire(ctx context.Context, session string) (bool, error) {
	return get(ctx, l, func() bool { return l.expire(session) })
}

func (l *Link) Bury(ctx context.Context, session, by, because string) (driver.Burial, error) {
	return get(ctx, l, func() driver.Burial {
		s := l.SessionRows[session]
		switch {
		case s == nil:
			return driver.Missing
		case s.Dead:
			return driver.DeadAlready
		}
		s.Dead, s.BuriedBy, s.Buried = true, by, because
		return driver.Buried
	})
}

func (l *Link) Expired(ctx context.Context, limit int) ([]string, error) {
	return get(ctx, l, func() (ids []string) {
		for id, s := range l.SessionRows {
			if !s.Dead && s.Expires <= l.Micros() {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int { return int(l.SessionRows[a].Started - l.SessionRows[b].Started) })
		return ids[:min(len(ids), limit)]
	})
}
