package mysql

import (
	"context"
	"math"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
)

// The short ways are transactions of two statements that write, for a place at the end of a queue
// and for a hand-over to one waiter. They do nothing, and say so, where another case is at hand:
// Change is for that. They wait for the name's row in the server's own order, where Change comes
// back to it at random, and need a connection on which such a wait ends soon: one of a side pool
// that is attended.

// joinQueue is Join where somebody holds the whole name.
func (e *engine) joinQueue(ctx context.Context, r driver.Request) (joined bool, err error) {
	if r.Units > 0 || !r.Wait || !e.side.Attended() {
		return false, nil
	}
	members := max(r.Members, 1)
	err = e.transactAt(ctx, r.Name, func(q *mysqldb.Queries) ([]string, error) {
		joined = false
		ticket, err := q.TakeTicket(ctx, mysqldb.TakeTicketParams{Name: r.Name, Members: int64(members)})
		if _, err := granted(err); err != nil || ticket == 0 {
			return nil, err
		}
		joined = true
		return nil, q.AddPlace(ctx, mysqldb.AddPlaceParams{
			Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: plainJSON(r.Metadata), MinHold: r.MinHold.Microseconds(), Members: int32(members),
		})
	})
	return joined && err == nil, err
}

// handToHead is Remove by the holder of a whole name where the first place is alive and wants the
// whole name for as long as its session lives. A session that dies between the statements gets the
// name nevertheless, as one that dies a moment later would.
func (e *engine) handToHead(ctx context.Context, r driver.Removal) (next []driver.Handoff, err error) {
	if !e.side.Attended() {
		return nil, nil
	}
	err = e.transactAt(ctx, r.Name, func(q *mysqldb.Queries) ([]string, error) {
		next = nil
		places, err := nextWaiters(ctx, q, mysqldb.NextWaitersParams{Name: r.Name, After: math.MinInt64, Limit: 2})
		if err != nil || len(places) == 0 {
			return nil, err
		}
		w := places[0]
		if w.Alive == 0 || w.Units > 0 || w.Lease > 0 || w.MinHold > 0 {
			return nil, nil
		}
		token, err := q.HandToHead(ctx, mysqldb.HandToHeadParams{
			Name: r.Name, Holder: r.Session, Token: r.Token, Ticket: w.Ticket, Members: int64(w.Members), Unseen: unseen(r.Self, w.SessionID),
			Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt, Metadata: w.Metadata,
		})
		if _, err := granted(err); err != nil || token == 0 {
			return nil, err
		}
		grant := driver.Grant{First: token - int64(w.Members) + 1, Token: token, Contended: len(places) > 1}
		next = []driver.Handoff{{Session: w.SessionID, Attempt: w.Attempt, Grant: grant}}
		return others(r.Self, w.SessionID), q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: r.Name, Ticket: w.Ticket})
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}
