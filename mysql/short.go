package mysql

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/crew"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// The short ways are single statements for the common case, each its own transaction. They do
// nothing, and report it, where another case is at hand: the long way is for that. They wait for
// the name's row, in the server's own order, and need a connection on which such a wait ends soon:
// one of a crew that is attended.

// atRow runs work whose only wait is for a name's row. ErrBusy where that took too long.
func (e *engine) atRow(ctx context.Context, name string, work func(ctx context.Context, u upkeep) error) error {
	defer e.rowQueues.await(ctx, name, e.rowTimeout)()
	return mysqlserver.Interpret(e.crew.Do(ctx, func(ctx context.Context, u upkeep) error {
		return mysqlserver.Interpret(work(ctx, u))
	}))
}

// written is the error of a statement that writes, and that may have been run nevertheless.
func written(err error) error {
	if err == nil {
		return nil
	}
	_, err = granted(err)
	return crew.Sent{Err: mysqlserver.Interpret(err)}
}

// handOver releases a whole name to the first in its queue, where that is alive and wants the whole
// name for as long as its session lives. A session that dies between the two statements gets the
// name nevertheless, as one that dies a moment later would.
func (e *engine) handOver(ctx context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	if !e.crew.Attended() || e.spares.full() {
		return nil, false, nil
	}
	err = e.atRow(ctx, v.Name, func(ctx context.Context, u upkeep) error {
		list, err := u.q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: v.Name, After: math.MinInt64, Limit: 2})
		if err != nil || len(list) == 0 {
			return err
		}
		w := list[0]
		if w.Alive == 0 || w.Units > 0 || w.Lease > 0 || w.MinHold > 0 {
			return nil
		}
		spare := rand.Int64()
		token, err := u.q.HandToHead(ctx, mysqldb.HandToHeadParams{
			Name: v.Name, Holder: v.Session, Token: v.Token, Spare: spare, Handed: handed(v.Self, w.SessionID),
			Ticket: w.Ticket, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt, Metadata: w.Metadata,
		})
		if err != nil || token == 0 {
			return written(err)
		}
		e.spares.put(spare)
		left, next = true, []driver.Handoff{{Session: w.SessionID, Attempt: w.Attempt, Grant: driver.Grant{Token: token, Contended: len(list) > 1}}}
		wakeUp(ctx, u.conn, others(v.Self, w.SessionID))
		return nil
	})
	return next, left, err
}

// joinQueue joins the queue of a name that is held as a whole, with a spare.
func (e *engine) joinQueue(ctx context.Context, r driver.Request) (joined bool, err error) {
	if r.Units > 0 || !r.Wait || !e.crew.Attended() {
		return false, nil
	}
	for _, spare := range e.spares.take(1) {
		err = e.atRow(ctx, r.Name, func(ctx context.Context, u upkeep) error {
			n, err := u.q.JoinQueue(ctx, mysqldb.JoinQueueParams{
				Name: r.Name, Spare: spare, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
				Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(), Metadata: plainJSON(r.Metadata),
			})
			if joined = n > 0; joined || err != nil {
				return written(err)
			}
			return dropSpares(ctx, u.q, spare)
		})
	}
	return joined, err
}

// dropSpares deletes places that were set aside.
func dropSpares(ctx context.Context, q *mysqldb.Queries, tickets ...int64) error {
	for _, ticket := range tickets {
		if err := q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: "", Ticket: ticket}); err != nil {
			return err
		}
	}
	return nil
}
