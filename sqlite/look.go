package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
)

// What a row of LookShared and of Describe is about.
const (
	aName = iota
	aShare
	aPlace
	theHead
)

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	var states []driver.State
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		states, err = look(ctx, q, session, names)
		return err
	})
	return states, err
}

func look(ctx context.Context, q *sqlitedb.Queries, session string, names []string) ([]driver.State, error) {
	list, err := jsonOf(names)
	if err != nil {
		return nil, err
	}
	rows, err := q.Look(ctx, sqlitedb.LookParams{Session: session, Names: list})
	if err != nil {
		return nil, err
	}
	states := make([]driver.State, 0, len(names))
	index := make(map[string]int, len(names)) // where in states a name stands
	var closer []string
	for _, row := range rows {
		i, seen := index[row.Name]
		if !seen {
			i, index[row.Name] = len(states), len(states)
			states = append(states, driver.State{Name: row.Name})
			see(&states[i], whole(row), session)
			if row.SharedUnits > 0 || !row.SessionID.Valid && row.Waiters > 0 {
				closer = append(closer, row.Name)
			}
		}
		if row.Place.Valid {
			states[i].Queued = append(states[i].Queued, row.Place.String)
		}
	}
	if len(closer) > 0 {
		if err := lookCloser(ctx, q, session, closer, func(name string) *driver.State { return &states[index[name]] }); err != nil {
			return nil, err
		}
	}
	for i := range states {
		conclude(&states[i])
	}
	return states, nil
}

// lookCloser sees the names anew, whatever was seen of them before: only what one statement sees
// belongs together.
func lookCloser(ctx context.Context, q *sqlitedb.Queries, session string, names []string, state func(name string) *driver.State) error {
	list, err := jsonOf(names)
	if err != nil {
		return err
	}
	rows, err := q.LookShared(ctx, sqlitedb.LookSharedParams{Session: session, Names: list})
	if err != nil {
		return err
	}
	for _, name := range names {
		*state(name) = driver.State{Name: name}
	}
	for _, row := range rows {
		see(state(row.Name), row, session)
	}
	return nil
}

// whole is the row of a name as LookShared has it.
func whole(row sqlitedb.LookRow) sqlitedb.LookSharedRow {
	return sqlitedb.LookSharedRow{
		Name: row.Name, Kind: aName, Session: row.SessionID.String, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		Token: row.LastToken, FirstToken: row.FirstToken, Since: row.AcquiredAt, ExpiresAt: row.ExpiresAt,
		NowUs: row.NowUs, Dead: row.Dead, SessionExpiresAt: row.SessionExpiresAt,
		Waiters: row.Waiters, Capacity: row.Capacity, SharedUnits: row.SharedUnits, RestsUntil: row.RestsUntil,
	}
}

// see adds one row to what is known of its name. The rows come in no order.
func see(s *driver.State, row sqlitedb.LookSharedRow, session string) {
	switch row.Kind {
	case aName:
		s.Waiters, s.Used = int(row.Waiters), int(row.SharedUnits)
		s.Rest = max(0, microseconds(row.RestsUntil-row.NowUs))
		if s.Waiters > 0 || s.Used > 0 {
			s.Capacity = int(row.Capacity)
		}
		if row.Session == "" {
			return
		}
		s.Holder = holder(row)
	case aShare:
		s.Sharing++
		if h := holder(row); s.Holder.Session == "" || h.Left < s.Holder.Left {
			s.Holder = h
		}
	case aPlace:
		s.Queued = append(s.Queued, row.Attempt)
		return
	case theHead:
		s.Head, s.Ready = holder(row), row.Fits > 0
		return
	}
	if row.Session == session {
		s.Granted = append(s.Granted, driver.OwnGrant{Attempt: row.Attempt, Grant: holder(row).Grant})
	}
}

// conclude draws from all rows of a name what none of them tells alone.
func conclude(s *driver.State) {
	slices.SortFunc(s.Granted, func(a, b driver.OwnGrant) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) })
	contended := s.Waiters > 0
	s.Holder.Grant.Contended = contended && s.Holder.Session != ""
	for i := range s.Granted {
		s.Granted[i].Grant.Contended = contended
	}
	held := s.Holder.Session != "" && s.Sharing == 0
	// Where there are waiters but none at the head, the number is wrong, and Remove puts that
	// right.
	s.Ready = contended && !held && s.Rest <= 0 && (s.Head.Session == "" || s.Ready)
	if s.Sharing == 0 {
		s.Head = driver.Holder{}
	}
}

// holder is also a waiter: with no token.
func holder(row sqlitedb.LookSharedRow) driver.Holder {
	h := driver.Holder{
		Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units),
		Grant: driver.Grant{First: row.FirstToken, Token: row.Token},
		Since: time.UnixMicro(row.Since), Left: microseconds(-row.NowUs),
	}
	if row.Dead.Valid && !row.Dead.Bool && row.SessionExpiresAt.Valid {
		h.Left = microseconds(row.SessionExpiresAt.Int64 - row.NowUs)
	}
	if row.ExpiresAt.Valid {
		h = h.WithFixedLease(microseconds(row.ExpiresAt.Int64 - row.NowUs))
	}
	return h
}

// jsonOf is how a list goes into a statement.
func jsonOf(list []string) (string, error) {
	if list == nil {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}
