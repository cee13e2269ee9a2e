package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// hand writes what a hand-over has decided.
type hand struct {
	q    *mysqldb.Queries
	name string
	self string

	forewarned []string // the session of a waiter that has to look, though it got nothing
}

// drop takes tickets out of the queue.
func (h hand) drop(ctx context.Context, tickets []int64) error {
	for _, ticket := range tickets {
		if err := h.q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: h.name, Ticket: ticket}); err != nil {
			return err
		}
	}
	return nil
}

// give gives the whole name to a waiter, and to those behind it that are of its run.
func (h hand) give(ctx context.Context, w mysqldb.NextWaitersRow, waiters int32) (next []driver.Handoff, err error) {
	var members []mysqldb.NextWaitersRow
	if w.Passable && waiters > 0 {
		behind, err := h.q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: h.name, After: w.Ticket, Limit: driver.MaxRun - 1})
		if err != nil {
			return nil, err
		}
		members = membersOf(w, behind)
	}
	last, err := h.q.GiveLock(ctx, mysqldb.GiveLockParams{
		Name: h.name, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt, Members: int64(len(members)),
		Lease: lease(microseconds(w.Lease)), MinHold: lease(microseconds(w.MinHold)), Metadata: w.Metadata, Waiters: waiters,
		Handed: handed(h.self, w.SessionID),
	})
	if err != nil {
		return nil, err
	}
	next = handoffs(w, members, last, waiters > 0)
	tickets := make([]int64, len(members))
	for i, m := range members {
		tickets[i] = m.Ticket
	}
	for some := range chunks(tickets) {
		list := strings.ReplaceAll(strings.Trim(fmt.Sprint(tickets), "[]"), " ", ",")
		if err := h.q.MarkMembers(ctx, mysqldb.MarkMembersParams{Name: h.name, FirstToken: next[0].Grant.Token, List: list, Tickets: some}); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// handed is 1 for a grant that its session has to be told of.
func handed(self, session string) int8 {
	if session == self {
		return 0
	}
	return 1
}

// share writes the row of a name that nobody has as a whole, and gives those with these tickets
// their units, and their tokens in next.
func (h hand) share(ctx context.Context, tickets []int64, next []driver.Handoff, row mysqldb.LockRowRow) error {
	if len(tickets) == 0 {
		return h.q.FreeLock(ctx, mysqldb.FreeLockParams{
			Name: h.name, Used: int64(row.SharedUnits), Capacity: row.Capacity, Mixed: row.Mixed, Waiters: row.Waiters,
		})
	}
	last, err := h.q.GiveUnits(ctx, mysqldb.GiveUnitsParams{
		Name: h.name, Used: int64(row.SharedUnits), Capacity: row.Capacity, Mixed: row.Mixed, Waiters: row.Waiters, More: int64(len(tickets) - 1),
	})
	if err != nil {
		return err
	}
	before := last - int64(len(tickets))
	for i := range next {
		next[i].Grant.Token = before + 1 + int64(i)
		next[i].Grant.Contended = row.Waiters > 0
	}
	for len(tickets) > 0 {
		some := tickets[:min(len(tickets), maxList)]
		if err := h.q.HandShares(ctx, mysqldb.HandSharesParams{Name: h.name, Self: h.self, Before: before, Tickets: pad(some)}); err != nil {
			return err
		}
		before, tickets = before+int64(len(some)), tickets[len(some):]
	}
	return nil
}
