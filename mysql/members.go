package mysql

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/queue"
)

// The members of a run are waiters that were granted the name with the one that the row shows. They
// keep their places, marked with their tokens, until the run ends: always the first places of the
// queue.

// handoffs are the grants to a waiter and to the members of its run. token is the last of theirs.
func handoffs(head mysqldb.NextWaitersRow, members []mysqldb.NextWaitersRow, token int64, contended bool) []driver.Handoff {
	first := token - int64(len(members))
	grant := driver.Grant{Token: first, Contended: contended, Lease: microseconds(head.Lease), Run: rangeOf(first, token)}
	next := make([]driver.Handoff, 0, 1+len(members))
	next = append(next, driver.Handoff{Session: head.SessionID, Attempt: head.Attempt, Grant: grant})
	for _, m := range members {
		grant.Token++
		next = append(next, driver.Handoff{Session: head.SessionID, Attempt: m.Attempt, Grant: grant})
	}
	return next
}

// rangeOf is a run, or the zero value where the only token is that of a plain holder.
func rangeOf(first, last int64) driver.Range {
	if first == last {
		return driver.Range{}
	}
	return driver.Range{First: first, Last: last}
}

// membersOf are those of the waiters right behind one that are granted the whole name with it, as
// its run.
func membersOf(head mysqldb.NextWaitersRow, behind []mysqldb.NextWaitersRow) []mysqldb.NextWaitersRow {
	places := make([]queue.Place, len(behind))
	for i, w := range behind {
		places[i] = placeOf(w)
	}
	return behind[:queue.Members(placeOf(head), places)]
}

// placeOf is a waiter as a run sees it.
func placeOf(w mysqldb.NextWaitersRow) queue.Place {
	return queue.Place{Session: w.SessionID, Units: int(w.Units), Passable: w.Passable}
}

// endRun ends the run that has a locked name, if it is one: the places of members that were served
// go, and the others wait again where they stand.
func endRun(ctx context.Context, db mysqldb.DBTX, name string, row *mysqldb.LockRowRow, served bool) error {
	if row.FirstToken == row.LastToken {
		return nil
	}
	q := mysqldb.New(db)
	members, err := q.Members(ctx, name)
	if err != nil {
		return err
	}
	if served {
		return dropMembers(ctx, db, name, row, members)
	}
	return reset(ctx, q, name, members, false)
}

// reset has members wait again.
func reset(ctx context.Context, q *mysqldb.Queries, name string, members []mysqldb.MembersRow, singly bool) error {
	for some := range chunks(ticketsOf(members)) {
		if err := q.ResetMembers(ctx, mysqldb.ResetMembersParams{Name: name, Singly: number01(singly), Tickets: some}); err != nil {
			return err
		}
	}
	return nil
}

func ticketsOf(members []mysqldb.MembersRow) (tickets []int64) {
	for _, m := range members {
		tickets = append(tickets, m.Ticket)
	}
	return tickets
}

// passOn takes the member that the row of a locked name shows out of its run. The row shows the
// next one, as a new grant: the session may not have heard of the run yet. It reports false where
// there is none.
func passOn(ctx context.Context, db mysqldb.DBTX, name string, row *mysqldb.LockRowRow) (bool, error) {
	if row.FirstToken == row.LastToken {
		return false, nil
	}
	q := mysqldb.New(db)
	members, err := q.Members(ctx, name)
	if err != nil || len(members) == 0 {
		return false, err
	}
	if err := dropMembers(ctx, db, name, row, members[:1]); err != nil {
		return false, err
	}
	return true, show(ctx, q, name, members[0], row.LastToken, row.Waiters, 1)
}

// show writes a member of a run into the row of a locked name, as the first of what is left of it.
func show(ctx context.Context, q *mysqldb.Queries, name string, m mysqldb.MembersRow, last int64, waiters int32, handed int8) error {
	return q.ShowMember(ctx, mysqldb.ShowMemberParams{
		Name: name, Attempt: m.Attempt, Host: m.Host, Thread: m.Thread, FirstToken: m.Token, LastToken: last, Waiters: waiters, Handed: handed,
	})
}

func (e *engine) Settle(ctx context.Context, h driver.Held, singly bool) error {
	return e.transactAtWith(ctx, h.Name, func(db mysqldb.DBTX) ([]string, error) {
		q := mysqldb.New(db)
		row, there, err := e.lockRow(ctx, q, h.Name, true)
		if err != nil || !there || row.SessionID != h.Session || h.Token < row.FirstToken || h.Token > row.LastToken {
			return nil, notHeld(err)
		}
		if row.FirstToken == row.LastToken {
			return nil, nil
		}
		members, err := q.Members(ctx, h.Name)
		if err != nil {
			return nil, err
		}
		m := mysqldb.MembersRow{Attempt: row.Attempt, Host: row.Host, Thread: row.Thread, Token: row.FirstToken}
		if h.Token > row.FirstToken {
			n := slices.IndexFunc(members, func(m mysqldb.MembersRow) bool { return m.Token == h.Token })
			if n < 0 {
				return nil, driver.ErrNotHeld
			}
			m = members[n]
			if err := dropMembers(ctx, db, h.Name, &row, members[:n+1]); err != nil {
				return nil, err
			}
			members = members[n+1:]
		}
		if err := reset(ctx, q, h.Name, members, singly); err != nil {
			return nil, err
		}
		return nil, show(ctx, q, h.Name, m, h.Token, row.Waiters, 0)
	})
}
