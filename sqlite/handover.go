package sqlite

import (
	"context"
	"database/sql"
	"math"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/queue"
)

// transition is a transaction that hands names on, and what others must hear of it once it has
// committed.
type transition struct {
	q    *writer
	self string // the session that asks needs not hear of a grant to itself
	next []driver.Handoff
	told []notice
}

// change runs fn as one transaction, maybe more than once, and tells the sessions concerned after
// the commit.
func (e *engine) change(ctx context.Context, how writing, self string, fn func(context.Context, *transition) error) ([]driver.Handoff, error) {
	var t *transition
	err := e.db.writeAs(ctx, how, func(ctx context.Context, w *writer) error {
		t = &transition{q: w, self: self}
		return fn(ctx, t)
	})
	if err != nil {
		return nil, err
	}
	e.deliver(t.told)
	return t.next, nil
}

// tell lets a session know that something became of an attempt, or of what it watches. The dead are
// not told.
func (t *transition) tell(ctx context.Context, session, attempt string) error {
	nth, alive, err := found(t.q.CountGrant(ctx, session))
	if alive {
		t.told = append(t.told, notice{session, nth, attempt})
	}
	return err
}

// room is what others find of a name.
type room = sqlitedb.RoomOfRow

// standing is what decides about a name. The cool-down is not in it: it needs the time.
func standing(r room) queue.State {
	return queue.State{Held: r.SessionID.Valid, Used: int(r.SharedUnits), Capacity: int(r.Capacity), Waiters: int(r.Waiters)}
}

// claim says how a name must be held for it to be taken away: by session and token, or by session
// and attempt.
type claim = sqlitedb.FreeLockParams

func (e *engine) Vacate(ctx context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	how := writing{relaxed: v.Cause != driver.ByForce} // which makes an entry in the history
	next, err = e.change(ctx, how, v.Self, func(ctx context.Context, t *transition) (err error) {
		left, err = t.leaves(ctx, v)
		return err
	})
	return next, left && err == nil, err
}

func (e *engine) Leave(ctx context.Context, session, name string, attempts []string) ([]driver.Handoff, error) {
	return e.change(ctx, writing{}, session, func(ctx context.Context, t *transition) error {
		_, err := t.leave(ctx, session, name, attempts...)
		return err
	})
}

// leaves takes off a name what a vacancy says.
func (t *transition) leaves(ctx context.Context, v driver.Vacancy) (bool, error) {
	from := claim{Name: v.Name, Session: v.Session, Token: v.Token}
	switch v.Cause {
	case driver.ByHolder:
		if !v.Contended && !v.Shared {
			n, err := t.q.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: v.Name, Session: v.Session, Token: v.Token})
			if err != nil || n > 0 {
				return true, err
			}
		}
		return t.release(ctx, v.Held())
	case driver.ByAttempt:
		if left, err := t.leave(ctx, v.Session, v.Name, v.Attempt); err != nil || left {
			return left, err
		}
		if left, err := t.leaveRun(ctx, v.Session, v.Name, v.Attempt); err != nil || left {
			return left, err
		}
		return t.takeAway(ctx, claim{Name: v.Name, Session: v.Session, Attempt: v.Attempt})
	case driver.ByTime:
		return t.reclaim(ctx, v, from)
	case driver.ByForce:
		return t.breach(ctx, v, from)
	}
	r, there, err := found(t.q.RoomOf(ctx, v.Name)) // a transaction or an operator released it, or its cool-down is over
	if err != nil || !there {
		return false, err
	}
	return t.handOn(ctx, v.Name, r)
}

func (t *transition) release(ctx context.Context, h driver.Held) (bool, error) {
	from := t.vacate
	if h.Shared {
		from = t.dropShare
	}
	r, held, err := from(ctx, claim{Name: h.Name, Session: h.Session, Token: h.Token})
	if err != nil || !held {
		return false, err
	}
	if r, err = t.endRun(ctx, h.Name, r, true); err != nil {
		return false, err
	}
	_, err = t.handOn(ctx, h.Name, r)
	return true, err
}

// releaseSettled is release where the row may show a run still, of which the holder is the present
// member: what settles it waits for the caller's transaction.
func (t *transition) releaseSettled(ctx context.Context, h driver.Held) error {
	if !h.Shared {
		if err := t.settle(ctx, h, false); err != nil {
			return err
		}
	}
	held, err := t.release(ctx, h)
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return err
}

func (t *transition) reclaim(ctx context.Context, v driver.Vacancy, from claim) (bool, error) {
	dead, err := expire(ctx, t.q.Queries, v.Session)
	switch {
	case err != nil:
		return false, err
	case v.Token == 0 && dead:
		return t.leave(ctx, v.Session, v.Name, v.Attempt)
	case v.Token == 0:
		return false, nil
	}
	if _, due, err := found(t.q.IsDue(ctx, sqlitedb.IsDueParams{Name: v.Name, Session: v.Session, Token: v.Token})); err != nil || !due {
		return false, err
	}
	return t.takeAway(ctx, from)
}

func (t *transition) breach(ctx context.Context, v driver.Vacancy, from claim) (taken bool, err error) {
	attempt := v.Attempt
	if v.Token == 0 {
		taken, err = t.leave(ctx, v.Session, v.Name, attempt)
	} else if attempt, taken, err = found(t.q.AttemptOf(ctx, sqlitedb.AttemptOfParams{Name: v.Name, Session: v.Session, Token: v.Token})); taken {
		taken, err = t.takeAway(ctx, from)
	}
	if err != nil || !taken {
		return false, err
	}
	if err := t.tell(ctx, v.Session, attempt); err != nil {
		return false, err
	}
	return true, addEvent(ctx, t.q.Queries, v.Event)
}

// takeAway takes a name, or a share of it, from the holder that is meant, and hands it on. It
// reports false where it is not held so.
func (t *transition) takeAway(ctx context.Context, from claim) (bool, error) {
	r, held, err := t.vacate(ctx, from)
	if err == nil && !held {
		r, held, err = t.dropShare(ctx, from)
	}
	if err != nil || !held {
		return false, err
	}
	_, err = t.handOn(ctx, from.Name, r)
	return true, err
}

// vacate takes the whole name away.
func (t *transition) vacate(ctx context.Context, from claim) (room, bool, error) {
	row, held, err := found(t.q.FreeLock(ctx, from))
	return room(row), held, err
}

// dropShare takes a share away.
func (t *transition) dropShare(ctx context.Context, from claim) (room, bool, error) {
	units, held, err := found(t.q.DropShare(ctx, sqlitedb.DropShareParams(from)))
	if err != nil || !held {
		return room{}, false, err
	}
	row, _, err := found(t.q.ReturnUnits(ctx, sqlitedb.ReturnUnitsParams{Name: from.Name, Units: units}))
	return room(row), true, err
}

// leave gives up a place in the queue, and hands on: those behind it may fit where it did not.
func (t *transition) leave(ctx context.Context, session, name string, attempts ...string) (bool, error) {
	list, err := jsonOf(attempts)
	if err != nil {
		return false, err
	}
	gone, err := t.q.DropPlaces(ctx, sqlitedb.DropPlacesParams{Name: name, Attempts: list, Session: session})
	if err != nil || gone == 0 {
		return false, err
	}
	row, _, err := found(t.q.CountWaiters(ctx, sqlitedb.CountWaitersParams{Name: name, Gone: gone}))
	if err != nil {
		return false, err
	}
	_, err = t.handOn(ctx, name, room(row))
	return true, err
}

// handOn gives what is free of a name to the first in the queue, as far as they fit, and reports
// whether that changed anything. The dead among them, and before the first that does not fit, lose
// their places. No live waiter is passed over. A name that is free has no run: what is left of one
// waits again.
func (t *transition) handOn(ctx context.Context, name string, r room) (changed bool, err error) {
	if r.SessionID.Valid || r.Waiters == 0 {
		return false, nil
	}
	r, err = t.endRun(ctx, name, r, false)
	if err != nil {
		return false, err
	}
	now, err := t.q.Clock(ctx)
	if err != nil {
		return false, err
	}
	if r.RestsUntil > now {
		return false, t.forewarn(ctx, name)
	}
	walk := queue.Walk{State: standing(r)}
	handed := len(t.next)
	ends := false // what was given ends, or can be had again, at a time that those behind do not know of
	for walk.Goes() {
		w, there, err := found(t.q.FirstWaiter(ctx, name))
		if err != nil {
			return false, err
		}
		if !there {
			w.Ticket = math.MaxInt64
		}
		fit := there && walk.Meet(queue.Waiter{Units: int(w.Units), Of: int(w.Capacity)}) == queue.Granted
		upTo := w.Ticket
		if there && !fit {
			upTo--
		}
		gone, err := t.q.DropWaiters(ctx, sqlitedb.DropWaitersParams{Name: name, Ticket: upTo})
		if err != nil {
			return false, err
		}
		changed = changed || gone > 0
		switch {
		case !there:
			walk.Waiters = 0
			err = t.q.EmptyQueue(ctx, name) // whatever was counted
			changed = true
		case !fit && gone > 0:
			_, err = t.q.CountWaiters(ctx, sqlitedb.CountWaitersParams{Name: name, Gone: gone})
			walk.Waiters -= int(gone)
		case fit:
			walk.Waiters, err = t.grant(ctx, name, w, gone, now)
			ends = ends || w.Lease > 0 || w.MinHold > 0
		}
		if err != nil {
			return false, err
		}
	}
	for i := range t.next[handed:] {
		t.next[handed+i].Grant.Contended = walk.Waiters > 0
	}
	if ends && walk.Waiters > 0 {
		err = t.forewarn(ctx, name)
	}
	return changed, err
}

// forewarn has the first waiter that is left look, so that it knows when to look again: at the end
// of a rest, or of a lease.
func (t *transition) forewarn(ctx context.Context, name string) error {
	w, there, err := found(t.q.FirstWaiter(ctx, name))
	if err != nil || !there {
		return err
	}
	return t.tell(ctx, w.SessionID, w.Attempt)
}

// grant gives a name, or units of it, to a waiter that fits, with those that make a run with it,
// and returns how many places there are now.
func (t *transition) grant(ctx context.Context, name string, w sqlitedb.FirstWaiterRow, gone, now int64) (int, error) {
	members, err := t.followers(ctx, name, w)
	if err != nil {
		return 0, err
	}
	var row sqlitedb.GiveLockRow
	if w.Units == 0 {
		p := sqlitedb.GiveLockParams{
			Name: name, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt, Metadata: w.Metadata,
			ExpiresAt: sql.NullInt64{Int64: now + w.Lease, Valid: w.Lease > 0}, Now: now, Gone: gone,
			Members: int64(len(members)),
		}
		if w.MinHold > 0 {
			p.RestsUntil = now + w.MinHold
		}
		row, err = t.q.GiveLock(ctx, p)
	} else {
		row, err = t.grantUnits(ctx, name, w, gone, now)
	}
	if err != nil {
		return 0, err
	}
	t.q.keep(row.FirstToken+int64(len(members)), now, microseconds(w.MinHold))
	if len(members) > 0 {
		err = t.grantRun(ctx, name, w, row.FirstToken, members)
	} else {
		t.next = append(t.next, driver.Handoff{Session: w.SessionID, Attempt: w.Attempt, Grant: driver.Grant{
			Token: row.FirstToken, Lease: microseconds(w.Lease),
		}})
	}
	if err != nil {
		return 0, err
	}
	if w.SessionID == t.self {
		return int(row.Waiters), nil
	}
	return int(row.Waiters), t.tell(ctx, w.SessionID, w.Attempt)
}
