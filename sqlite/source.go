package sqlite

import (
	"context"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// source reads a name in a transaction that has the write lock.
type source struct {
	ctx  context.Context
	q    *sqlitedb.Queries
	name string
}

func (s source) Places(after int64, limit int) ([]protocol.Place, error) {
	rows, err := s.q.Places(s.ctx, sqlitedb.PlacesParams{Name: s.name, After: after, Most: int64(limit)})
	if err != nil {
		return nil, err
	}
	places := make([]protocol.Place, len(rows))
	for i, row := range rows {
		places[i] = s.placeOf(row)
	}
	return places, nil
}

func (s source) Place(session, attempt string) (protocol.Place, bool, error) {
	row, there, err := found(s.q.PlaceOf(s.ctx, sqlitedb.PlaceOfParams{Attempt: attempt, Name: s.name,
		Session: session}))
	return s.placeOf(sqlitedb.PlacesRow(row)), there, err
}

func (s source) placeOf(row sqlitedb.PlacesRow) protocol.Place {
	return protocol.Place{
		Request: protocol.Request{
			Name: s.name, Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
			Members: int(row.Members), Lease: microseconds(row.Lease), Metadata: row.Metadata,
			MinHold: microseconds(row.MinHold), Units: int(row.Units), Of: int(row.Capacity), Patient: true,
		},
		Ticket: row.Ticket, Since: row.EnqueuedAt, Alive: row.Alive,
	}
}

func (s source) ShareOf(session, attempt string) (protocol.Share, bool, error) {
	row, there, err := found(s.q.ShareOfAttempt(s.ctx, sqlitedb.ShareOfAttemptParams{Attempt: attempt, Name: s.name,
		Session: session}))
	return shareOf(sqlitedb.SharesRow(row)), there, err
}

func (s source) Shares(tokens ...int64) (shares []protocol.Share, err error) {
	if len(tokens) == 0 {
		rows, err := s.q.Shares(s.ctx, s.name)
		for _, row := range rows {
			shares = append(shares, shareOf(row))
		}
		return shares, err
	}
	rows, err := s.q.SharesWith(s.ctx, sqlitedb.SharesWithParams{Name: s.name, Tokens: tokens})
	for _, row := range rows {
		shares = append(shares, shareOf(sqlitedb.SharesRow(row)))
	}
	return shares, err
}

func shareOf(row sqlitedb.SharesRow) protocol.Share {
	return protocol.Share{
		Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token,
		Units: int(row.Units), Of: int(row.Capacity), Since: row.AcquiredAt, Ends: row.ExpiresAt,
		Metadata: row.Metadata, Asked: row.Asked,
	}
}

func (s source) Tally() (protocol.Tally, error) {
	row, err := s.q.Tally(s.ctx, s.name)
	return protocol.Tally{
		Waiters: int(row.Waiters), Units: int(row.Units), First: row.Lowest, Last: row.Highest,
		Smallest: int(row.Smallest), Largest: int(row.Largest),
	}, err
}

func (s source) Expire(session string) (bool, error) { return expire(s.ctx, s.q, session) }

// Seize locks nothing: a transaction that guards a hold has locked the database.
func (source) Seize(string, bool) error { return nil }
