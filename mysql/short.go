package mysql

import (
	"context"
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

// handOver releases a whole name to the first in its queue, and to the members of the run that it
// begins, where that is alive and wants the whole name for as long as its session lives. A session
// that dies between the statements gets the name nevertheless, as one that dies a moment later
// would.
func (e *engine) handOver(ctx context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	if !e.crew.Attended() || e.spares.full() {
		return nil, false, nil
	}
	err = e.atRow(ctx, v.Name, func(ctx context.Context, u upkeep) error {
		f, err := readFront(ctx, u.q, v.Name)
		if err != nil || f.head == nil {
			return err
		}
		w := *f.head
		if w.Alive == 0 || w.Units > 0 || w.Lease > 0 || w.MinHold > 0 {
			return nil
		}
		var token int64
		var spares []int64
		if len(f.served)+len(f.members) > 0 {
			token, spares, err = handToRun(ctx, u.db, v, f)
		} else {
			spares = []int64{rand.Int64()}
			token, err = u.q.HandToHead(ctx, mysqldb.HandToHeadParams{
				Name: v.Name, Holder: v.Session, Token: v.Token, Spare: spares[0], Handed: handed(v.Self, w.SessionID),
				Ticket: w.Ticket, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt, Metadata: w.Metadata,
			})
		}
		if err != nil || token == 0 {
			return written(err)
		}
		e.spares.put(spares...)
		left, next = true, handoffs(w, f.members, token, f.more || len(f.members) > 0)
		wakeUp(ctx, u.conn, others(v.Self, w.SessionID))
		return nil
	})
	return next, left, err
}

// joinQueue joins the queue of a name that is held as a whole, with a spare for each request. Where
// there are not enough for several requests, it is a short transaction.
func (e *engine) joinQueue(ctx context.Context, rs []driver.Request) (joined bool, err error) {
	r := rs[0]
	if r.Units > 0 || !r.Wait || !e.crew.Attended() {
		return false, nil
	}
	spares := e.spares.take(len(rs))
	switch {
	case len(spares) == 0 && len(rs) == 1:
		return false, nil
	case len(spares) < len(rs):
		e.spares.put(spares...)
		return e.joinTogether(ctx, rs)
	}
	err = e.atRow(ctx, r.Name, func(ctx context.Context, u upkeep) error {
		var n int64
		var err error
		if len(rs) > 1 {
			n, err = joinWithSpares(ctx, u.db, rs, spares)
		} else {
			n, err = u.q.JoinQueue(ctx, mysqldb.JoinQueueParams{
				Name: r.Name, Spare: spares[0], Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
				Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(), Metadata: plainJSON(r.Metadata), Passable: number01(r.Passable),
			})
		}
		if joined = n > 0; joined || err != nil {
			return written(err)
		}
		return dropSpares(ctx, u.q, spares...)
	})
	return joined, err
}

// joinTogether waits for the name's row in the server's own order.
func (e *engine) joinTogether(ctx context.Context, rs []driver.Request) (joined bool, err error) {
	err = e.transactAtWith(ctx, rs[0].Name, func(db mysqldb.DBTX) ([]string, error) {
		first, err := mysqldb.New(db).TakeTicketsOfHeld(ctx, mysqldb.TakeTicketsOfHeldParams{Name: rs[0].Name, Places: int64(len(rs))})
		if _, err = granted(err); err != nil || first == 0 {
			return nil, err
		}
		joined = true
		return nil, addPlaces(ctx, db, first, rs)
	})
	return joined && err == nil, err
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
