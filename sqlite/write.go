package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// write writes the changes of an op to a name, and counts the hints.
func (c *changed) write(ctx context.Context, w *writer, before protocol.Row, n *protocol.Name, there bool) error {
	if !there {
		if err := w.MakeLock(ctx, n.Row.Name); err != nil {
			return err
		}
	}
	if n.Changed() {
		if err := writeRow(ctx, w.Queries, before, n.Row); err != nil {
			return err
		}
	}
	for _, p := range n.GonePlaces {
		if err := w.DropPlace(ctx, sqlitedb.DropPlaceParams{Name: n.Row.Name, Ticket: p.Ticket}); err != nil {
			return err
		}
	}
	for _, p := range n.SetPlaces {
		err := w.SetMembers(ctx, sqlitedb.SetMembersParams{
			Members: int64(p.Members), Name: n.Row.Name, Ticket: p.Ticket,
		})
		if err != nil {
			return err
		}
	}
	for _, p := range n.PutPlaces {
		c.joined = append(c.joined, p.Session)
		if err := addPlace(ctx, w.Queries, n.Row.Name, p); err != nil {
			return err
		}
	}
	if err := writeShares(ctx, w.Queries, n); err != nil {
		return err
	}
	for _, ev := range n.Events {
		if err := addEvent(ctx, w.Queries, ev); err != nil {
			return err
		}
	}
	// A detached lock outlives all processes.
	moved := n.Session != "" && n.Session != before.Session && n.Last == before.Last
	w.lasting = w.lasting || moved || len(n.Events) > 0
	if n.Token != before.Token {
		w.keep(n.Token, n.Now, microseconds(n.Rests-n.Now))
	}
	return c.tell(ctx, w.Queries, n)
}

// writeRow writes the row of a name, with a shorter statement if only its queue has changed: most
// of a statement's price is parsing its text, each time.
func writeRow(ctx context.Context, q *sqlitedb.Queries, before, r protocol.Row) error {
	before.Capacity, before.Waiters, before.Head, before.Next = r.Capacity, r.Waiters, r.Head, r.Next
	if r == before {
		return q.WriteQueue(ctx, sqlitedb.WriteQueueParams{
			Capacity: int64(r.Capacity), Waiters: int64(r.Waiters), NextTicket: r.Next, Name: r.Name,
		})
	}
	return q.WriteLock(ctx, sqlitedb.WriteLockParams{
		Session: sql.NullString{String: r.Session, Valid: r.Session != ""}, Host: r.Host, Thread: r.Thread,
		Attempt: r.Attempt, FirstToken: r.First, LastToken: r.Last, Token: r.Token, AcquiredAt: r.Since,
		ExpiresAt: moment(r.Ends), RestsUntil: r.Rests, Metadata: r.Metadata, Asked: r.Asked,
		SharedUnits: int64(r.Units), Capacity: int64(r.Capacity), Mixed: r.Mixed, Waiters: int64(r.Waiters),
		NextTicket: r.Next, Name: r.Name,
	})
}

func addPlace(ctx context.Context, q *sqlitedb.Queries, name string, p protocol.Place) error {
	return q.AddPlace(ctx, sqlitedb.AddPlaceParams{
		Name: name, Ticket: p.Ticket, Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt,
		Members: int64(max(p.Members, 1)), Lease: p.Lease.Microseconds(), Metadata: p.Metadata,
		MinHold: p.MinHold.Microseconds(), Units: int64(p.Units), Capacity: int64(p.Of), EnqueuedAt: p.Since,
	})
}

func writeShares(ctx context.Context, q *sqlitedb.Queries, n *protocol.Name) error {
	for _, s := range n.GoneShares {
		if err := q.DropShare(ctx, sqlitedb.DropShareParams{Name: n.Row.Name, Token: s.Token}); err != nil {
			return err
		}
	}
	for _, s := range slices.Concat(n.PutShares, n.SetShares) {
		err := q.PutShare(ctx, sqlitedb.PutShareParams{
			Name: n.Row.Name, Token: s.Token, Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt,
			Units: int64(s.Units), Capacity: int64(s.Of), AcquiredAt: s.Since, ExpiresAt: moment(s.Ends),
			Metadata: s.Metadata, Asked: s.Asked,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// moment converts a time that may be missing (0).
func moment(at int64) sql.NullInt64 { return sql.NullInt64{Int64: at, Valid: at != 0} }

// tell counts the hints of a transition, for listeners that do not receive them.
func (c *changed) tell(ctx context.Context, q *sqlitedb.Queries, n *protocol.Name) error {
	for _, t := range n.Notices {
		if err := c.count(ctx, q, t.Session, t.Hint.Attempt); err != nil {
			return err
		}
	}
	if !n.WakesWatchers {
		return nil
	}
	return c.notifyWatchers(ctx, q, n.Row.Name)
}

// notifyWatchers notifies the sessions that watch a name.
func (c *changed) notifyWatchers(ctx context.Context, q *sqlitedb.Queries, name string) error {
	watchers, err := q.Watchers(ctx, name)
	for _, watcher := range watchers {
		if err == nil {
			err = c.count(ctx, q, watcher.SessionID, watcher.Watch)
		}
	}
	return err
}

// count records for a session that an attempt was granted or lost, or that a watched name changed.
// Dead sessions are not notified.
func (c *changed) count(ctx context.Context, q *sqlitedb.Queries, session, attempt string) error {
	nth, alive, err := found(q.CountGrant(ctx, session))
	if alive {
		c.notices = append(c.notices, notice{session, nth, attempt})
	}
	return err
}
