package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

// writer writes the changes of a transition. Where the server has JSON_TABLE, one statement writes
// several places, or shares, of a Sequence.
type writer struct {
	*mysqldb.Queries
	db    mysqldb.DBTX
	lists bool // the server has JSON_TABLE
	self  string
}

// write writes the changes of a transition to a name that has a row, and returns the sessions to
// wake. It writes the name's row first: a reader of uncommitted data must not find more rows than
// are counted.
func (w writer) write(ctx context.Context, n *protocol.Name, was mysqldb.LockRowRow) (wake []string, err error) {
	if n.Changed() {
		if err := w.WriteRow(ctx, written(n, w.self, was)); err != nil {
			return nil, err
		}
	}
	name := n.Row.Name
	for _, write := range []func() error{
		func() error { return w.dropShares(ctx, name, n.GoneShares) },
		func() error { return w.putShares(ctx, name, n.PutShares) },
		func() error {
			return each(n.SetShares, func(s protocol.Share) error { return w.putShare(ctx, name, s) })
		},
		func() error { return w.dropPlaces(ctx, name, n.GonePlaces) },
		func() error {
			return each(n.SetPlaces, func(p protocol.Place) error {
				set, err := w.SetMembers(ctx, mysqldb.SetMembersParams{
					Members: int32(p.Members), Name: name, Ticket: p.Ticket,
				})
				return did(set, err, 1)
			})
		},
		func() error { return w.putPlaces(ctx, name, n.PutPlaces) },
		func() error {
			return each(n.Events, func(e protocol.Event) error { return addEvent(ctx, w.Queries, e) })
		},
	} {
		if err := write(); err != nil {
			return nil, err
		}
	}
	for _, t := range n.Notices {
		wake = append(wake, t.Session)
	}
	if n.WakesWatchers {
		watchers, err := w.Watchers(ctx, name)
		if err != nil {
			return nil, err
		}
		wake = append(wake, watchers...)
	}
	return others("", wake...), nil
}

// each calls f for each of a list, up to the first error.
func each[T any](list []T, f func(T) error) error {
	for _, one := range list {
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

func (w writer) dropShares(ctx context.Context, name string, shares []protocol.Share) error {
	if w.lists && len(shares) > 1 {
		return w.drop(ctx, dropShares, name, listOf(shares, w.listShare))
	}
	return each(shares, func(s protocol.Share) error {
		dropped, err := w.DropShare(ctx, mysqldb.DropShareParams{Name: transaction.Hex(name), Token: s.Token})
		return did(dropped, err, 1)
	})
}

func (w writer) putShares(ctx context.Context, name string, shares []protocol.Share) error {
	if w.lists && len(shares) > 1 {
		return w.put(ctx, putShares, name, listOf(shares, w.listShare))
	}
	return each(shares, func(s protocol.Share) error { return w.putShare(ctx, name, s) })
}

func (w writer) putShare(ctx context.Context, name string, s protocol.Share) error {
	return w.PutShare(ctx, mysqldb.PutShareParams{
		Name: name, Token: s.Token, Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt,
		Units: int32(s.Units), Capacity: int32(s.Of), AcquiredAt: s.Since, ExpiresAt: nullable(s.Ends),
		Metadata: plainJSON(s.Metadata), Asked: text0(s.Asked), Unseen: unseen(w.self, s.Session),
	})
}

func (w writer) dropPlaces(ctx context.Context, name string, places []protocol.Place) error {
	if w.lists && len(places) > 1 {
		return w.drop(ctx, dropPlaces, name, listOf(places, listPlace))
	}
	return each(places, func(p protocol.Place) error {
		return w.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: name, Ticket: p.Ticket})
	})
}

func (w writer) putPlaces(ctx context.Context, name string, places []protocol.Place) error {
	if w.lists && len(places) > 1 {
		return w.put(ctx, putPlaces, name, listOf(places, listPlace))
	}
	return each(places, func(p protocol.Place) error {
		return w.AddWaiter(ctx, mysqldb.AddWaiterParams{
			Name: name, Ticket: p.Ticket, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
			Lease: p.Lease.Microseconds(), Metadata: plainJSON(p.Metadata), EnqueuedAt: p.Since, Units: int32(p.Units),
			Capacity: int32(p.Of), MinHold: p.MinHold.Microseconds(), Members: int32(max(p.Members, 1)),
		})
	})
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
