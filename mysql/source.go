package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// source reads a name for a transition within its transaction, after the name's row was locked. At
// READ COMMITTED every statement sees the state since then.
type source struct {
	ctx     context.Context
	engine  *engine
	q       *mysqldb.Queries
	name    string
	refused *string // the attempt whose guard refused this transaction
}

// rowOf converts the row of a name for the protocol.
func rowOf(name string, row mysqldb.LockRowRow) protocol.Row {
	return protocol.Row{
		Name: name, Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		First: row.FirstToken, Last: row.LastToken, Token: row.Token, Since: row.AcquiredAt, Ends: row.ExpiresAt.Int64,
		Rests:    row.RestsUntil,
		Metadata: row.Metadata, Asked: row.Asked.String, Units: int(row.SharedUnits), Capacity: int(row.Capacity),
		Mixed:   row.Mixed,
		Waiters: int(row.Waiters), Head: row.FirstTicket, Next: row.NextTicket,
	}
}

// Places implements protocol.Source.
func (s *source) Places(after int64, limit int) ([]protocol.Place, error) {
	rows, err := nextWaiters(s.ctx, s.q, mysqldb.NextWaitersParams{Name: s.name, After: after, Limit: int32(limit)})
	places := make([]protocol.Place, len(rows))
	for i, row := range rows {
		places[i] = s.place(mysqldb.FindWaiterRow{
			Ticket: row.Ticket, SessionID: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
			Lease:    row.Lease,
			Metadata: row.Metadata, EnqueuedAt: row.EnqueuedAt, Units: row.Units, Capacity: row.Capacity,
			MinHold: row.MinHold, Members: row.Members,
		})
		places[i].Alive = row.Alive != 0
	}
	return places, err
}

func nextWaiters(
	ctx context.Context, q *mysqldb.Queries, p mysqldb.NextWaitersParams,
) ([]mysqldb.NextWaitersRow, error) {
	rows, err := q.NextWaiters(ctx, p)
	return whole(rows, err, func(r mysqldb.NextWaitersRow) bool { return r.SessionID == "" })
}

func (s *source) place(row mysqldb.FindWaiterRow) protocol.Place {
	return protocol.Place{Ticket: row.Ticket, Since: row.EnqueuedAt, Request: protocol.Request{
		Name: s.name, Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		Members: int(row.Members),
		Lease:   microseconds(row.Lease), MinHold: microseconds(row.MinHold), Metadata: row.Metadata,
		Units: int(row.Units), Of: int(row.Capacity),
	}}
}

// Place implements protocol.Source.
func (s *source) Place(session, attempt string) (protocol.Place, bool, error) {
	row, there, err := find(s.ctx, s.q.FindWaiter, mysqldb.FindWaiterParams{Attempt: attempt, Name: s.name})
	return s.place(row), there && row.SessionID == session, err
}

// ShareOf implements protocol.Source.
func (s *source) ShareOf(session, attempt string) (protocol.Share, bool, error) {
	row, there, err := find(s.ctx, s.q.FindShareOfAttempt, mysqldb.FindShareOfAttemptParams{Name: s.name,
		Attempt: attempt})
	return share(mysqldb.FindShareRow(row)), there && row.SessionID == session, err
}

// Shares implements protocol.Source.
func (s *source) Shares(tokens ...int64) (shares []protocol.Share, err error) {
	if len(tokens) == 0 {
		rows, err := s.q.Shares(s.ctx, s.name)
		rows, err = whole(rows, err, func(r mysqldb.SharesRow) bool { return r.SessionID == "" })
		for _, row := range rows {
			shares = append(shares, share(mysqldb.FindShareRow(row)))
		}
		return shares, err
	}
	for some := range chunks(tokens) {
		rows, err := s.q.SharesWith(s.ctx, mysqldb.SharesWithParams{Name: s.name, Tokens: some})
		rows, err = whole(rows, err, func(r mysqldb.SharesWithRow) bool { return r.SessionID == "" })
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			shares = append(shares, share(mysqldb.FindShareRow(row)))
		}
	}
	return shares, nil
}

func share(row mysqldb.FindShareRow) protocol.Share {
	return protocol.Share{
		Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token,
		Units: int(row.Units),
		Of:    int(row.Capacity), Since: row.AcquiredAt, Ends: row.ExpiresAt.Int64, Metadata: row.Metadata,
		Asked: row.Asked.String,
	}
}

// Tally implements protocol.Source.
func (s *source) Tally() (protocol.Tally, error) {
	row, err := s.q.Tally(s.ctx, mysqldb.TallyParams{Name: s.name})
	return protocol.Tally{
		Waiters: int(row.Waiters), Units: int(row.Units), First: row.Lowest, Last: row.Highest,
		Smallest: int(row.Smallest), Largest: int(row.Largest),
	}, err
}

// Expire implements protocol.Source. It locks nothing of a session with a current heartbeat, whose
// fixed lease may have expired.
func (s *source) Expire(session string) (dead bool, err error) {
	row, there, err := find(s.ctx, s.q.SessionBeats, session)
	if err != nil || there && (row.Dead || row.Beats != 0) {
		return row.Dead, err
	}
	return expire(s.ctx, s.q, session)
}

// Seize implements protocol.Source. It does not wait, so no connection queues behind a guarded
// transaction.
func (s *source) Seize(attempt string, holdOff bool) error {
	_, guarded, err := find(s.ctx, s.q.LockGuard, attempt)
	err = busy(err)
	switch {
	case errors.Is(err, driver.ErrBusy):
		if holdOff {
			*s.refused = attempt
		}
		return driver.Fail(driver.ErrGuarded, err)
	case err != nil || !guarded:
		return err
	}
	return s.q.TouchGuard(s.ctx, attempt)
}

// nullable converts a time, where 0 becomes null.
func nullable(at int64) sql.NullInt64 { return sql.NullInt64{Int64: at, Valid: at != 0} }
