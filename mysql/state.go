package mysql

import (
	"cmp"
	"database/sql"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// state is that of a name that nobody shares.
func state(row mysqldb.LookRow, session string) driver.State {
	s := driver.State{Name: row.Name, Waiters: int(row.Waiters), Rest: rest(row.RestsUntil, row.NowUs)}
	if row.Waiters > 0 {
		s.Capacity = int(row.Capacity)
	}
	if row.SessionID != "" {
		h := driver.Holder{
			Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
			Grant: driver.Grant{First: row.FirstToken, Token: row.LastToken, Contended: row.Waiters > 0},
		}
		has(&s, times(h, row.AcquiredAt, row.ExpiresAt, row.SessionExpiresAt, row.NowUs), session)
	}
	return s
}

// The parts of a name in LookShared and Describe.
const (
	theName int64 = iota
	aHolder
	aPlace
	theHead // of a queue
)

// assemble puts together what LookShared returns, in whatever order.
func assemble(rows []mysqldb.LookSharedRow, session string) []driver.State {
	slices.SortStableFunc(rows, func(a, b mysqldb.LookSharedRow) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Token, b.Token)) // the token of a place is its ticket
	})
	var states []driver.State
	var names []mysqldb.LookSharedRow // the rows of states
	index := map[string]int{}
	for _, row := range rows {
		h := driver.Holder{Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units)}
		if row.Part == theName {
			s := driver.State{Name: row.Name, Used: int(row.Units), Waiters: int(row.Waiters), Rest: rest(row.RestsUntil, row.NowUs)}
			if row.Units > 0 || row.Waiters > 0 {
				s.Capacity = int(row.Capacity)
			}
			if h.Units = 0; h.Session != "" {
				h.Grant = driver.Grant{First: row.FirstToken, Token: row.Token, Contended: row.Waiters > 0}
				has(&s, times(h, row.Since, row.ExpiresAt, row.SessionExpiresAt, row.NowUs), session)
			}
			s.Ready = h.Session == "" && row.Waiters > 0 && s.Rest <= 0 // until the head is known
			index[row.Name] = len(states)
			states, names = append(states, s), append(names, row)
			continue
		}
		i, there := index[row.Name]
		if !there {
			continue
		}
		s, name := &states[i], names[i]
		switch row.Part {
		case aHolder:
			s.Sharing = int(row.Sharing)
			h.Grant = driver.Grant{First: row.FirstToken, Token: row.Token, Contended: name.Waiters > 0}
			has(s, times(h, row.Since, row.ExpiresAt, row.SessionExpiresAt, name.NowUs), session)
		case aPlace:
			s.Queued = append(s.Queued, row.Attempt)
		case theHead:
			s.Ready = s.Ready && protocol.Row{Units: s.Used, Capacity: s.Capacity}.Fits(int(row.Units), int(row.Capacity))
			if s.Sharing > 0 {
				s.Head = times(h, row.Since, sql.NullInt64{}, row.SessionExpiresAt, name.NowUs)
			}
		}
	}
	return states
}

// has adds a holder: of several, State names the one whose time is over first.
func has(s *driver.State, h driver.Holder, session string) {
	if s.Holder.Session == "" || h.Left < s.Holder.Left {
		s.Holder = h
	}
	if h.Session == session {
		s.Granted = append(s.Granted, driver.OwnGrant{Attempt: h.Attempt, Grant: h.Grant})
	}
}

// times completes a holder, or a waiter, by the database's clock.
func times(h driver.Holder, since int64, expiresAt sql.NullInt64, sessionExpiresAt, now int64) driver.Holder {
	h.Since, h.Left = time.UnixMicro(since), microseconds(sessionExpiresAt-now)
	if expiresAt.Valid {
		h = h.WithFixedLease(microseconds(expiresAt.Int64 - now))
	}
	return h
}

// rest is how long nobody gets a name for the sake of MinHold.
func rest(until, now int64) time.Duration { return microseconds(max(until-now, 0)) }
