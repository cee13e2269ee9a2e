package mysql

import (
	"context"
	"math"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/queue"
)

// vacate locks a name's row, has leave take a holder or a waiter off it, and hands on what that
// makes room for. Where leave reports false nothing is changed. The sessions that get something are
// woken, except self, and those that leave names.
func (e *engine) vacate(ctx context.Context, name, self string, leave func(db mysqldb.DBTX, row *mysqldb.LockRowRow) (left bool, wake []string, err error)) (next []driver.Handoff, left bool, err error) {
	err = e.transactAtWith(ctx, name, func(db mysqldb.DBTX) ([]string, error) {
		q := mysqldb.New(db)
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there {
			return nil, err
		}
		var wake []string
		if left, wake, err = leave(db, &row); err != nil || !left {
			return nil, err
		}
		h := hand{q: q, name: name, self: self}
		if next, _, err = h.over(ctx, row); err != nil {
			return nil, err
		}
		for _, h := range next {
			wake = append(wake, h.Session)
		}
		return append(others(self, wake...), h.forewarned...), nil
	})
	if err != nil {
		return nil, false, err
	}
	return next, left, nil
}

func (e *engine) Vacate(ctx context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	switch {
	case v.Cause == driver.Nothing:
		return e.promote(ctx, v.Self, v.Name)
	case v.Cause == driver.ByHolder && v.Contended && !v.Shared:
		if next, left, err := e.handOver(ctx, v); left || err != nil {
			return next, left, err
		}
	case v.Cause == driver.ByHolder && !v.Contended && !v.Shared:
		released, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{Name: v.Name, Session: v.Session, Token: v.Token})
		if err != nil || released > 0 {
			return nil, err == nil, mysqlserver.Interpret(err)
		}
	case v.Cause == driver.ByTime && !v.LeaseOver: // then it is the session that must be dead
		if dead, err := e.Expire(ctx, v.Session); err != nil || !dead {
			return nil, false, err
		}
	}
	var attempt string
	next, left, err = e.vacate(ctx, v.Name, v.Self, func(db mysqldb.DBTX, row *mysqldb.LockRowRow) (left bool, wake []string, err error) {
		q := mysqldb.New(db)
		switch {
		case v.Cause == driver.ByAttempt:
			left, err = undo(ctx, db, v, row)
		case v.Token == 0:
			left, err = leaveQueue(ctx, q, v.Name, v.Session, v.Attempt, row)
		default:
			attempt, left, err = giveUp(ctx, db, v, row)
		}
		if err != nil || !left || v.Cause != driver.ByForce {
			return left, nil, err
		}
		return true, []string{v.Session}, addEvent(ctx, q, v.Event)
	})
	if v.Cause == driver.ByForce {
		e.announce(ctx, attempt, err)
	}
	return next, left, err
}

// undo takes away whatever an attempt has.
func undo(ctx context.Context, db mysqldb.DBTX, v driver.Vacancy, row *mysqldb.LockRowRow) (bool, error) {
	q := mysqldb.New(db)
	if row.SessionID == v.Session && row.Attempt == v.Attempt {
		if passed, err := passOn(ctx, db, v.Name, row); passed || err != nil {
			return passed, err
		}
		row.SessionID = ""
		return true, nil
	}
	if row.SharedUnits > 0 {
		share, err := q.FindShareOfAttempt(ctx, mysqldb.FindShareOfAttemptParams{Name: v.Name, Attempt: v.Attempt})
		if there, err := found(err); err != nil {
			return false, err
		} else if there && share.SessionID == v.Session {
			return part{name: v.Name, token: share.Token, units: share.Units}.drop(ctx, q, row)
		}
	}
	return leaveQueue(ctx, q, v.Name, v.Session, v.Attempt, row)
}

// giveUp takes a lock or a share away that is known by its token. What its holder does not release
// itself is a takeover: it passes the guard.
func giveUp(ctx context.Context, db mysqldb.DBTX, v driver.Vacancy, row *mysqldb.LockRowRow) (attempt string, left bool, err error) {
	q := mysqldb.New(db)
	p, there, err := findPart(ctx, q, v.Name, *row, v.Session, v.Token)
	if err != nil || !there {
		return "", false, err
	}
	if v.Cause == driver.ByHolder {
		if v.Shared != (p.units > 0) {
			return "", false, nil
		}
		left, err = p.leave(ctx, db, row, true)
		return p.attempt, left, err
	}
	take, err := pass(ctx, q, p.attempt)
	if err != nil {
		return p.attempt, false, err
	}
	if v.Cause == driver.ByTime {
		if over, err := p.over(ctx, q, v.Session); err != nil || !over {
			return p.attempt, false, err
		}
	}
	if left, err = p.leave(ctx, db, row, false); err == nil && left {
		err = take()
	}
	return p.attempt, left, err
}

// over reports whether the time of a part is over: its session is dead, or its fixed lease has
// ended. It is called after the locks: a lease is not over before its row was waited for.
func (p part) over(ctx context.Context, q *mysqldb.Queries, session string) (bool, error) {
	dead, err := q.SessionDead(ctx, session)
	if _, err := found(err); err != nil {
		return false, err
	}
	if dead {
		return true, nil
	}
	now, err := q.Clock(ctx)
	return err == nil && p.expiresAt.Valid && p.expiresAt.Int64 <= now, err
}

func (e *engine) Leave(ctx context.Context, session, name string, attempts []string) ([]driver.Handoff, error) {
	next, _, err := e.vacate(ctx, name, session, func(db mysqldb.DBTX, row *mysqldb.LockRowRow) (left bool, _ []string, err error) {
		q := mysqldb.New(db)
		var tickets []int64
		for some := range chunks(attempts) {
			found, err := q.FindPlaces(ctx, mysqldb.FindPlacesParams{Name: name, Session: session, Attempts: some})
			if err != nil {
				return false, nil, err
			}
			tickets = append(tickets, found...)
		}
		if len(tickets) == 0 {
			return false, nil, nil
		}
		row.Waiters = max(row.Waiters-int32(len(tickets)), 0)
		if err = q.CountWaiters(ctx, mysqldb.CountWaitersParams{Name: name, Waiters: row.Waiters}); err == nil {
			err = dropPlaces(ctx, db, name, tickets)
		}
		return err == nil, nil, err
	})
	return next, err
}

// leaveQueue gives up a place in a locked name's queue. It counts before it drops: a reader of
// uncommitted data must not find more counted than there are.
func leaveQueue(ctx context.Context, q *mysqldb.Queries, name, session, attempt string, row *mysqldb.LockRowRow) (bool, error) {
	w, err := q.FindWaiter(ctx, mysqldb.FindWaiterParams{Attempt: attempt, Name: name})
	if queued, err := found(err); err != nil || !queued || w.SessionID != session {
		return false, err
	}
	row.Waiters = max(row.Waiters-1, 0)
	if err := q.CountWaiters(ctx, mysqldb.CountWaitersParams{Name: name, Waiters: row.Waiters}); err != nil {
		return false, err
	}
	return true, q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: name, Ticket: w.Ticket})
}

// promote hands on a name that has room for the first in its queue: ReleaseTx left it so, or it
// rested when it was released.
func (e *engine) promote(ctx context.Context, self, name string) (next []driver.Handoff, taken bool, err error) {
	err = e.transactAt(ctx, name, func(q *mysqldb.Queries) ([]string, error) {
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there || row.SessionID != "" || row.Waiters == 0 {
			return nil, err
		}
		var gone bool
		h := hand{q: q, name: name, self: self}
		next, gone, err = h.over(ctx, row)
		taken = gone || len(next) > 0
		var wake []string
		for _, h := range next {
			wake = append(wake, h.Session)
		}
		return append(others(self, wake...), h.forewarned...), err
	})
	if err != nil {
		return nil, false, err
	}
	return next, taken, nil
}

// batch is how many places in a queue are read at once behind one that got its share.
const batch = 64

// over gives a locked name, with room as its row says, to the first waiters that live and fit, and
// writes the row. The dead before them leave the queue, which gone tells of. It runs after LockRow,
// and reads new snapshots. self needs no notification.
func (h *hand) over(ctx context.Context, row mysqldb.LockRowRow) (next []driver.Handoff, gone bool, err error) {
	if row.SessionID != "" { // a place in the queue was given up behind it
		return nil, false, nil
	}
	rests, err := resting(ctx, h.q, row)
	if err != nil {
		return nil, false, err
	}
	if err := restate(ctx, h.q, h.name, &row); err != nil {
		return nil, false, err
	}
	walk := queue.Walk{State: standing(row)}
	walk.Resting = rests
	var whole *mysqldb.NextWaitersRow
	var dropped, shared []int64 // tickets
	after := int64(math.MinInt64)
	ends := rests // those behind do not know of a time at which there is something to be had
	for limit := int32(1); walk.Goes(); limit = batch {
		list, err := h.q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: h.name, After: after, Limit: limit})
		if err != nil {
			return nil, false, err
		}
		if len(list) == 0 { // somebody deleted rows by hand
			walk.Waiters, gone = 0, true
		}
		for _, w := range list {
			verdict := walk.Meet(queue.Waiter{Units: int(w.Units), Of: int(w.Capacity), Dead: w.Alive == 0})
			if verdict == queue.Waits {
				break
			}
			after, dropped = w.Ticket, append(dropped, w.Ticket)
			ends = ends || verdict == queue.Granted && (w.Lease > 0 || w.MinHold > 0)
			switch {
			case verdict == queue.Dismissed:
				gone = true
			case w.Units == 0:
				whole = &w
			default:
				shared = append(shared, w.Ticket)
				next = append(next, driver.Handoff{Session: w.SessionID, Attempt: w.Attempt, Grant: driver.Grant{Lease: microseconds(w.Lease)}})
			}
		}
	}
	row.SharedUnits, row.Capacity, row.Mixed, row.Waiters = int32(walk.Used), int32(walk.Capacity), walk.Mixed, int32(walk.Waiters)
	if whole != nil {
		if err = h.drop(ctx, dropped); err == nil {
			next, err = h.give(ctx, *whole, row.Waiters)
		}
	} else if err = h.share(ctx, shared, next, row); err == nil {
		err = h.drop(ctx, dropped)
	}
	if err == nil && ends && row.Waiters > 0 {
		err = h.forewarn(ctx, after)
	}
	return next, gone, err
}

// forewarn has the first waiter that is left look, so that it knows when to look again: at the end
// of a rest, or of a lease.
func (h *hand) forewarn(ctx context.Context, after int64) error {
	for {
		list, err := h.q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: h.name, After: after, Limit: batch})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, w := range list {
			if after = w.Ticket; w.Alive != 0 {
				h.forewarned = []string{w.SessionID}
				return nil
			}
		}
	}
}

// resting reports whether nobody gets a locked name for the sake of MinHold.
func resting(ctx context.Context, q *mysqldb.Queries, row mysqldb.LockRowRow) (bool, error) {
	if row.RestsUntil == 0 || row.Waiters == 0 {
		return false, nil
	}
	now, err := q.Clock(ctx)
	return row.RestsUntil > now, err
}
