package mysql

import (
	"context"
	"math"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// vacate locks a name's row, has leave take somebody off it, and hands on what that makes room for.
// Where leave reports false nothing is changed. The sessions that get something are woken, except
// self, and those that leave names.
func (e *engine) vacate(ctx context.Context, name, self string, leave func(q *mysqldb.Queries, row *mysqldb.LockRowRow) (left bool, wake []string, err error)) (next []driver.Handoff, left bool, err error) {
	err = e.transactAt(ctx, name, func(q *mysqldb.Queries) ([]string, error) {
		row, there, err := e.lockRow(ctx, q, name, true)
		if err != nil || !there {
			return nil, err
		}
		var wake []string
		if left, wake, err = leave(q, &row); err != nil || !left {
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

func (e *engine) Release(ctx context.Context, h driver.Held, contended bool) ([]driver.Handoff, error) {
	if !contended && !h.Shared {
		released, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{
			Name: h.Name, Session: h.Session, Token: h.Token,
		})
		if err != nil || released > 0 {
			return nil, mysqlserver.Interpret(err)
		}
	}
	next, left, err := e.vacate(ctx, h.Name, h.Session, func(q *mysqldb.Queries, row *mysqldb.LockRowRow) (bool, []string, error) {
		p, there, err := findPart(ctx, q, h.Name, *row, h.Session, h.Token)
		if err != nil || !there || h.Shared != (p.units > 0) {
			return false, nil, err
		}
		left, err := p.drop(ctx, q, row)
		return left, nil, err
	})
	if err == nil && !left {
		err = driver.ErrNotHeld
	}
	return next, err
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) ([]driver.Handoff, error) {
	next, _, err := e.vacate(ctx, name, session, func(q *mysqldb.Queries, row *mysqldb.LockRowRow) (bool, []string, error) {
		if row.SessionID == session && row.Attempt == attempt {
			row.SessionID = ""
			return true, nil, nil
		}
		if row.SharedUnits > 0 {
			share, err := q.FindShareOfAttempt(ctx, mysqldb.FindShareOfAttemptParams{Name: name, Attempt: attempt})
			if there, err := found(err); err != nil {
				return false, nil, err
			} else if there && share.SessionID == session {
				left, err := part{name: name, token: share.Token, units: share.Units}.drop(ctx, q, row)
				return left, nil, err
			}
		}
		left, err := leaveQueue(ctx, q, name, session, attempt, row)
		return left, nil, err
	})
	return next, err
}

// leaveQueue gives up a place in a locked name's queue. It counts before it drops: who reads
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

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) (next []driver.Handoff, taken bool, err error) {
	if holder.Session == "" {
		return e.promote(ctx, self, name)
	}
	if holder.Grant.Lease >= 0 { // not a fixed lease that is over: then it is the session that must be dead
		if dead, err := e.Expire(ctx, holder.Session); err != nil || !dead {
			return nil, false, err
		}
	}
	return e.vacate(ctx, name, self, func(q *mysqldb.Queries, row *mysqldb.LockRowRow) (bool, []string, error) {
		if holder.Grant.Token == 0 {
			left, err := leaveQueue(ctx, q, name, holder.Session, holder.Attempt, row)
			return left, nil, err
		}
		p, there, err := findPart(ctx, q, name, *row, holder.Session, holder.Grant.Token)
		if err != nil || !there {
			return false, nil, err
		}
		take, err := pass(ctx, q, p.attempt)
		if err != nil {
			return false, nil, err
		}
		dead, err := q.SessionDead(ctx, holder.Session)
		if _, err := found(err); err != nil {
			return false, nil, err
		}
		if !dead {
			now, err := q.Clock(ctx) // after the locks: a lease is not over before its row was waited for
			if err != nil || !p.expiresAt.Valid || p.expiresAt.Int64 > now {
				return false, nil, err
			}
		}
		left, err := p.drop(ctx, q, row)
		if err == nil && left {
			err = take()
		}
		return left, nil, err
	})
}

func (e *engine) Break(ctx context.Context, self, name string, holder driver.Holder, event driver.Event) (next []driver.Handoff, taken bool, err error) {
	var p part
	next, taken, err = e.vacate(ctx, name, self, func(q *mysqldb.Queries, row *mysqldb.LockRowRow) (left bool, wake []string, err error) {
		if holder.Grant.Token == 0 {
			left, err = leaveQueue(ctx, q, name, holder.Session, holder.Attempt, row)
		} else {
			var there bool
			if p, there, err = findPart(ctx, q, name, *row, holder.Session, holder.Grant.Token); err != nil || !there {
				return false, nil, err
			}
			take, err := pass(ctx, q, p.attempt)
			if err != nil {
				return false, nil, err
			}
			if left, err = p.drop(ctx, q, row); err == nil && left {
				err = take()
			}
			if err != nil {
				return false, nil, err
			}
		}
		if err != nil || !left {
			return false, nil, err
		}
		return true, []string{holder.Session}, addEvent(ctx, q, event)
	})
	e.announce(ctx, p.attempt, err)
	return next, taken, err
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

// over gives a locked name, with room as its row says, to those who are first in the queue, live,
// and fit, and writes the row. The dead before them leave the queue, which gone tells of. It runs
// after LockRow, and reads new snapshots. self needs no notification.
func (h *hand) over(ctx context.Context, row mysqldb.LockRowRow) (next []driver.Handoff, gone bool, err error) {
	if row.SessionID != "" { // a place in the queue was given up behind it
		return nil, false, nil
	}
	stop, err := resting(ctx, h.q, row)
	if err != nil {
		return nil, false, err
	}
	var dropped, granted []int64 // tickets
	after := int64(math.MinInt64)
	ends := stop // those behind do not know of a time at which there is something to be had
	for limit := int32(1); row.Waiters > 0 && !stop; limit = batch {
		list, err := h.q.NextWaiters(ctx, mysqldb.NextWaitersParams{Name: h.name, After: after, Limit: limit})
		if err != nil {
			return nil, false, err
		}
		if len(list) == 0 { // somebody deleted rows by hand
			row.Waiters, gone = 0, true
		}
		for _, w := range list {
			fits := w.Units == 0 && row.SharedUnits == 0 || w.Units > 0 && room(row.SharedUnits, row.Capacity, w.Units, row.Capacity)
			if w.Alive != 0 && !fits {
				stop = true // those behind it wait with it
				break
			}
			after = w.Ticket
			row.Waiters = max(row.Waiters-1, 0)
			dropped = append(dropped, w.Ticket)
			ends = ends || w.Alive != 0 && (w.Lease > 0 || w.MinHold > 0)
			switch {
			case w.Alive == 0:
				gone = true
			case w.Units == 0:
				if err := h.drop(ctx, dropped); err != nil {
					return nil, false, err
				}
				whole, err := h.give(ctx, w, row.Waiters)
				if err == nil && ends && row.Waiters > 0 {
					err = h.forewarn(ctx, after)
				}
				return []driver.Handoff{whole}, gone, err
			default:
				row.SharedUnits += w.Units
				granted = append(granted, w.Ticket)
				next = append(next, driver.Handoff{Session: w.SessionID, Attempt: w.Attempt, Grant: driver.Grant{Lease: microseconds(w.Lease)}})
			}
		}
	}
	if err := h.share(ctx, granted, next, row); err != nil {
		return nil, false, err
	}
	if ends && row.Waiters > 0 {
		if err := h.forewarn(ctx, after); err != nil {
			return nil, false, err
		}
	}
	return next, gone, h.drop(ctx, dropped)
}

// forewarn has the first who still waits look, so that it knows when to look again: at the end of a
// rest, or of a lease.
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
