package dblock

import (
	"context"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Session is a client as the database knows it: its locks live as long as its session.
type Session struct {
	ID        string
	Host, App string // as WithHost and WithApp have set them
	PID       int
	Started   time.Time // by the database's clock
	Until     time.Time // when it ends without another heartbeat, by this machine's clock; the zero time: it was ended
	Alive     bool      // its time is not over
	Held      int       // locks and shares; goroutines that pass a lock on in memory have one together
	Waiting   int       // places in queues
}

// SessionFilter chooses sessions. The zero value: all that live.
type SessionFilter struct {
	Host  string // "": any
	App   string // "": any
	Limit uint   // at most so many; 0: all
	After string // only sessions with a higher ID: the last of a page, to go on behind it
	Dead  bool   // also those that have ended, or whose time is over, for as long as the reaper leaves them
}

// Sessions lists the clients that use the database, in the order of their IDs, a page at a time:
// each as it was when its page was read. A client has a session from its first lock on. The
// iteration ends after the first error.
func (c *Client[TX]) Sessions(ctx context.Context, f SessionFilter) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		want := driver.SessionFilter{Host: f.Host, App: f.App, Dead: f.Dead}
		after := f.After
		pages(f.Limit, yield, func(size int) (sessions []Session, more bool, err error) {
			var page []driver.SessionDetail
			err = c.inquire(ctx, "sessions", "", func(ctx context.Context, engine driver.Backend) (err error) {
				page, err = engine.Sessions(ctx, want, after, size)
				return err
			})
			now := time.Now()
			for _, s := range page {
				after = s.ID
				sessions = append(sessions, sessionOf(s, now))
			}
			return sessions, len(page) == size, err
		})
	}
}

func sessionOf(s driver.SessionDetail, now time.Time) Session {
	session := Session{
		ID: s.ID, Host: s.Host, App: s.App, PID: s.PID, Started: s.Started, Held: s.Held, Waiting: s.Waiting,
	}
	if !s.Dead {
		session.Until, session.Alive = endAfter(now, s.Left), s.Left > 0
	}
	return session
}
