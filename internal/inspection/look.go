// Package inspection decides what clients and people see of names and sessions, by the flat rows
// that an engine reads. It does no I/O. Times are microseconds since 1970, by the database's clock.
package inspection

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// What a row is about.
const (
	Name  = iota // a name, with its holder where one has the whole of it
	Share        // a holder of a share
	Place        // for Describe: a place in the queue
	Head         // for Look: the first place in the queue
)

// Row is what Look reads, in the order of its columns. A name has a row for each attempt of the
// session's that waits for it, or one. What is of a name stands in its own rows alone.
type Row struct {
	Name             string
	Part             int64
	SessionID        string // of a name "": nobody has the whole of it
	Host             string
	Thread           string
	Attempt          string
	Token            int64 // of a head 0
	FirstToken       int64
	Units            int64 // of a name those that are in use
	Since            int64
	ExpiresAt        int64 // 0: no fixed lease
	SessionExpiresAt int64 // 0: the session is dead
	Capacity         int64 // of a name, and what its head states
	Waiters          int64 // of a name
	RestsUntil       int64 // of a name
	Sharing          int64 // of a share: how many there are; 0: as many as there are rows
	NowUs            int64
	Queued           string // of a name: an attempt of the session's that waits, or ""
}

// Holder is the holder that a row is about, or the waiter: with no token.
func (r Row) Holder() driver.Holder {
	h := driver.Holder{
		Session: r.SessionID, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Units: int(r.Units),
		Grant: driver.Grant{First: r.FirstToken, Token: r.Token},
		Since: time.UnixMicro(r.Since), Left: duration(r.SessionExpiresAt - r.NowUs),
	}
	if r.ExpiresAt != 0 {
		h = h.WithFixedLease(duration(r.ExpiresAt - r.NowUs))
	}
	return h
}

// Look is driver.Queue.Look by two statements. The first reads the rows of names alone. The second
// reads everything of those that are shared, or free with a queue. They are as the second says:
// only what one statement sees belongs together.
func Look(session string, names []string, first, second func(names []string) ([]Row, error)) ([]driver.State, error) {
	rows, err := first(names)
	if err != nil {
		return nil, err
	}
	var open []string
	rows = slices.DeleteFunc(rows, func(r Row) bool {
		more := r.SessionID == "" && (r.Units > 0 || r.Waiters > 0)
		if more {
			open = append(open, r.Name)
		}
		return more
	})
	if len(open) > 0 {
		slices.Sort(open)
		all, err := second(slices.Compact(open))
		if err != nil {
			return nil, err
		}
		rows = append(rows, all...)
	}
	return States(session, rows), nil
}

// States are names as a session sees them. The rows come in any order.
func States(session string, rows []Row) (states []driver.State) {
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Token, b.Token)) })
	index := make(map[string]int, len(rows)) // where in states a name stands
	for _, r := range rows {
		i, there := index[r.Name]
		switch {
		case r.Part != Name && !there: // it is left behind of a name without a row
		case r.Part != Name:
			add(&states[i], r, session)
		case !there:
			i, index[r.Name] = len(states), len(states)
			states = append(states, named(r, session))
			fallthrough
		default:
			if r.Queued != "" {
				states[i].Queued = append(states[i].Queued, r.Queued)
			}
		}
	}
	return states
}

func named(r Row, session string) driver.State {
	s := driver.State{
		Name: r.Name, Used: int(r.Units), Capacity: capacity(r.Capacity, r.Units, r.Waiters), Waiters: int(r.Waiters), Rest: rest(r.RestsUntil, r.NowUs),
	}
	// Where there are waiters but no head, the number is wrong, and Remove puts that right.
	s.Ready = s.Waiters > 0 && r.SessionID == "" && s.Rest <= 0
	if r.SessionID != "" {
		r.Units = 0
		has(&s, r, session)
	}
	return s
}

// add adds a row to its name. Those of the shares come before the head.
func add(s *driver.State, r Row, session string) {
	if r.Part == Share {
		s.Sharing = max(s.Sharing+1, int(r.Sharing))
		has(s, r, session)
		return
	}
	s.Ready = s.Ready && protocol.Row{Units: s.Used, Capacity: s.Capacity}.Fits(int(r.Units), int(r.Capacity))
	if s.Sharing > 0 {
		s.Head = r.Holder()
	}
}

// has adds a holder: of several, State names the one whose time is over first.
func has(s *driver.State, r Row, session string) {
	h := r.Holder()
	h.Grant.Contended = s.Waiters > 0
	if s.Holder.Session == "" || h.Left < s.Holder.Left {
		s.Holder = h
	}
	if h.Session == session {
		s.Granted = append(s.Granted, driver.OwnGrant{Attempt: h.Attempt, Grant: h.Grant})
	}
}

// rest is how long nobody gets a name for the sake of MinHold.
func rest(until, now int64) time.Duration { return duration(max(until-now, 0)) }

// capacity counts while units are in use, or there are waiters.
func capacity(capacity, used, waiters int64) int {
	if used == 0 && waiters == 0 {
		return 0
	}
	return int(capacity)
}

func duration(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
