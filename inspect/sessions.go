package inspect

import (
	"context"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/page"
)

// Session shows a client: its locks live as long as its session.
type Session struct {
	ID        string
	Host, App string // as set by dblock.WithHost and dblock.WithApp
	PID       int
	Started   time.Time // by the database's clock
	Until     time.Time // when it expires without a heartbeat, by this machine's clock; the zero time: it was ended
	Alive     bool      // it has neither ended nor expired
	Held      int       // locks and shares; goroutines that pass a lock on in memory have one together
	Waiting   int       // places in queues
	Buried    string    // why it was ended before its lease: "its process ended on HOST"; "": it was not
}

// SessionFilter selects sessions. The zero value selects all that are alive.
type SessionFilter struct {
	Host  string // "": any
	App   string // "": any
	Limit uint   // at most so many; 0: all
	After string // only sessions with a higher ID: the last ID of a page selects the next page
	Dead  bool   // also sessions that have ended or expired, until the reaper removes them
}

// Sessions lists the clients that use the database, in the order of their IDs, a page at a time:
// each as it was when its page was read. A client has a session from its first lock on. On
// PostgreSQL each page reads the rows of all names, for the numbers of locks. The iteration ends
// after the first error.
func (i *Inspector) Sessions(ctx context.Context, f SessionFilter) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		want := driver.SessionFilter{Host: f.Host, App: f.App, Dead: f.Dead}
		after := f.After
		page.Each(f.Limit, yield, func(size int) (sessions []Session, more bool, err error) {
			var details []driver.SessionDetail
			err = i.read(ctx, "sessions", "", func(ctx context.Context, engine driver.Backend) (err error) {
				details, err = engine.Sessions(ctx, want, after, size)
				return err
			})
			now := time.Now()
			for _, s := range details {
				after = s.ID
				sessions = append(sessions, sessionOf(s, now))
			}
			return sessions, len(details) == size, err
		})
	}
}

// sessionOf shows a session that was read now. An expired one ends now, as in driver.State.Until.
func sessionOf(s driver.SessionDetail, now time.Time) Session {
	session := Session{
		ID: s.ID, Host: s.Host, App: s.App, PID: s.PID, Started: s.Started, Held: s.Held, Waiting: s.Waiting,
		Buried: s.Buried,
	}
	if !s.Dead {
		session.Until, session.Alive = now.Add(max(s.Left, 0)), s.Left > 0
	}
	return session
}
