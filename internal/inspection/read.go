// Package inspection makes the values that clients and operators see, of names and sessions, from
// the flat rows that an engine reads. It does no I/O. Times are microseconds since 1970, by the
// database's clock.
package inspection

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// The parts of a name.
const (
	Name  = iota // the name, with its holder where one has the whole of it
	Share        // a holder of a share
	Place        // a place in the queue
)

// Row is a row that Read reads, in the order of its columns. A name has a row for each attempt of
// the session that waits for it, or one. The columns of a name are set in its own rows alone, and
// the details (Metadata to Buried) only where waiters were requested.
type Row struct {
	Name             string
	Part             int64
	Place            int64  // the order within a part; of a name the highest token
	SessionID        string // of a name "": the whole of it has no holder
	Host             string
	Thread           string
	Attempt          string
	Token            int64 // of a place 0
	FirstToken       int64
	Units            int64 // of a name the units in use
	Since            int64
	ExpiresAt        int64 // 0: no fixed lease
	SessionExpiresAt int64 // 0: the session is dead
	Capacity         int64 // of a name; of a place the number that its request states
	Waiters          int64 // of a name
	RestsUntil       int64 // of a name
	Sharing          int64 // of a share: the number of shares; 0: that of the rows
	NowUs            int64
	Queued           string // of a name: an attempt of the session that waits, or ""
	Metadata         string
	Asked            string
	App              string
	Pid              int64
	Buried           string // why its session was buried, or ""
}

// Holder returns the holder, or the waiter: with no token.
func (r Row) Holder() protocol.Holder {
	h := protocol.Holder{
		Session: r.SessionID, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Units: int(r.Units),
		Grant: protocol.Grant{First: r.FirstToken, Token: r.Token},
		Since: time.UnixMicro(r.Since), Left: duration(r.SessionExpiresAt - r.NowUs),
	}
	if r.ExpiresAt != 0 {
		h = h.WithFixedLease(duration(r.ExpiresAt - r.NowUs))
	}
	return h
}

// participant returns a holder or waiter with its details.
func (r Row) participant(h protocol.Holder) driver.Participant {
	return driver.Participant{
		Holder: h, App: r.App, PID: int(r.Pid), Metadata: r.Metadata, Asked: r.Asked, Buried: r.Buried,
	}
}

// Read is driver.Inspection.Read by two statements. The statement first reads only the rows of
// names. The statement all reads everything, with so many places of each queue: of all names where
// waiters are requested, and otherwise of those that are shared, or free with a queue. The state of
// a name comes from one statement: two see different moments.
func Read(
	session string, names []string, waiters int,
	first func(names []string) ([]Row, error), all func(names []string, places int) ([]Row, error),
) ([]driver.State, error) {
	if waiters > 0 {
		rows, err := all(names, waiters)
		return States(session, waiters, rows), err
	}
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
		more, err := all(slices.Compact(open), 1)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return States(session, waiters, rows), nil
}

// States returns names as a session sees them, with up to waiters places, and with all holders if
// waiters is not 0. The rows come in any order. States is called as soon as the database has
// answered: State.Seen is the time of the call.
func States(session string, waiters int, rows []Row) (states []driver.State) {
	seen := time.Now()
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Place, b.Place))
	})
	for i, r := range rows {
		n := len(states)
		there := n > 0 && states[n-1].Name == r.Name
		if r.Part == Name && !there {
			states, n, there = append(states, named(r, seen)), n+1, true
			if r.Units = 0; r.SessionID != "" {
				has(&states[n-1], r, session, waiters)
			}
		}
		switch {
		case !there: // a remnant of a name without a row
		case r.Part == Share:
			states[n-1].Sharing = max(states[n-1].Sharing+1, int(r.Sharing))
			has(&states[n-1], r, session, waiters)
		case r.Part == Place:
			awaits(&states[n-1], r, rows[i-1].Part != Place, waiters)
		case r.Queued != "":
			states[n-1].Queued = append(states[n-1].Queued, r.Queued)
		}
	}
	return states
}

// named returns the state of a name without its parts.
func named(r Row, seen time.Time) driver.State {
	s := driver.State{
		Name: r.Name, Seen: seen, Token: r.Place, Used: int(r.Units), Waiters: int(r.Waiters),
		Rest: duration(max(r.RestsUntil-r.NowUs, 0)),
	}
	if r.Units > 0 || r.Waiters > 0 { // else the column has a number that earlier requests stated
		s.Capacity = int(r.Capacity)
	}
	// Where there are waiters but no place, the number is wrong, and a Removal corrects it.
	s.Ready = s.Waiters > 0 && r.SessionID == "" && s.Rest <= 0
	return s
}

// has adds a holder. Of several, State.Holder is the one that expires first.
func has(s *driver.State, r Row, session string, waiters int) {
	h := r.Holder()
	h.Grant.Contended = s.Waiters > 0
	if s.Holder.Session == "" || h.Left < s.Holder.Left {
		s.Holder = h
	}
	if h.Session == session {
		s.Granted = append(s.Granted, driver.OwnGrant{Attempt: h.Attempt, Grant: h.Grant})
	}
	if waiters > 0 {
		s.Holders = append(s.Holders, r.participant(h))
	}
}

// awaits adds a place. The first one decides whether the name is ready to be handed over.
func awaits(s *driver.State, r Row, first bool, waiters int) {
	h := r.Holder()
	if first {
		s.Ready = s.Ready && protocol.Row{Units: s.Used, Capacity: s.Capacity}.Fits(int(r.Units), int(r.Capacity))
		if s.Sharing > 0 {
			s.Head = h
		}
	}
	if len(s.Queue) < waiters {
		s.Queue = append(s.Queue, r.participant(h))
	}
}

func duration(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
