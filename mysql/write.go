package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// write writes the changes of a transition to a name that has a row, and returns the sessions to
// wake. It writes the name's row first: a reader of uncommitted data must not find more rows than
// are counted.
func write(
	ctx context.Context, q *mysqldb.Queries, n *protocol.Name, self string, was mysqldb.LockRowRow,
) (wake []string, err error) {
	if n.Changed() {
		if err := q.WriteRow(ctx, written(n, self, was)); err != nil {
			return nil, err
		}
	}
	for _, s := range n.GoneShares {
		dropped, err := q.DropShare(ctx, mysqldb.DropShareParams{Name: transaction.Hex(n.Row.Name), Token: s.Token})
		if err := did(dropped, err, 1); err != nil {
			return nil, err
		}
	}
	for _, s := range n.PutShares {
		if err := q.PutShare(ctx, mysqldb.PutShareParams{
			Name: n.Row.Name, Token: s.Token, Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt,
			Units: int32(s.Units), Capacity: int32(s.Of), AcquiredAt: s.Since, ExpiresAt: nullable(s.Ends),
			Metadata: plainJSON(s.Metadata),
			Asked:    text0(s.Asked), Unseen: unseen(self, s.Session),
		}); err != nil {
			return nil, err
		}
	}
	for _, p := range n.GonePlaces {
		if err := q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: n.Row.Name, Ticket: p.Ticket}); err != nil {
			return nil, err
		}
	}
	for _, p := range n.PutPlaces {
		if err := q.AddWaiter(ctx, mysqldb.AddWaiterParams{
			Name: n.Row.Name, Ticket: p.Ticket, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
			Lease: p.Lease.Microseconds(), Metadata: plainJSON(p.Metadata), EnqueuedAt: p.Since, Units: int32(p.Units),
			Capacity: int32(p.Of),
			MinHold:  p.MinHold.Microseconds(), Members: int32(max(p.Members, 1)),
		}); err != nil {
			return nil, err
		}
	}
	for _, event := range n.Events {
		if err := addEvent(ctx, q, event); err != nil {
			return nil, err
		}
	}
	for _, t := range n.Told {
		wake = append(wake, t.Session)
	}
	if n.Stirred {
		watchers, err := q.Watchers(ctx, n.Row.Name)
		if err != nil {
			return nil, err
		}
		wake = append(wake, watchers...)
	}
	return others("", wake...), nil
}

// written returns the row of a name after a transition. A session that got the name from another
// one finds that in the row.
func written(n *protocol.Name, self string, was mysqldb.LockRowRow) mysqldb.WriteRowParams {
	p := mysqldb.WriteRowParams{
		Name: n.Row.Name, Session: text0(n.Session), Host: n.Host, Thread: n.Thread, Attempt: n.Attempt,
		Token: n.Token, FirstToken: n.First, LastToken: n.Last, AcquiredAt: n.Since, ExpiresAt: nullable(n.Ends),
		RestsUntil: n.Rests,
		Metadata:   plainJSON(n.Metadata), Asked: text0(n.Asked), SharedUnits: int32(n.Units),
		Capacity: int32(n.Capacity), Mixed: n.Mixed,
		Waiters: int32(n.Waiters), FirstTicket: n.Head, NextTicket: n.Next,
	}
	if n.Session != was.SessionID || n.Attempt != was.Attempt {
		p.Unseen = sql.NullInt64{Int64: int64(unseen(self, n.Session)), Valid: true}
	}
	return p
}

// unseen returns 1 for a grant of which its session must be notified.
func unseen(self, session string) int8 {
	if session == self || session == "" {
		return 0
	}
	return 1
}

// text0 converts a text, where "" becomes null.
func text0(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }
