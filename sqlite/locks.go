package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

// patienceOf is how long a request waits while another transaction has locked the database.
func patienceOf(r driver.Request) time.Duration {
	if r.Wait {
		return 0
	}
	return briefly
}

func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var token int64
	var taken bool
	err := e.db.writeAs(ctx, writing{patience: patienceOf(r), relaxed: true}, func(ctx context.Context, w *writer) (err error) {
		token, taken, err = take(ctx, w, r)
		return err
	})
	if err != nil || !taken {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, nil
}

// take is one statement for the whole name, and two for units of it.
func take(ctx context.Context, w *writer, r driver.Request) (token int64, taken bool, err error) {
	if r.Units > 0 {
		return takeUnits(ctx, w, r)
	}
	row, taken, err := found(w.TakeLock(ctx, sqlitedb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}))
	if err != nil || !taken {
		return 0, false, err
	}
	w.keep(row.Token, row.AcquiredAt, r.MinHold)
	return row.Token, true, setRest(ctx, w.Queries, r)
}

func setRest(ctx context.Context, q *sqlitedb.Queries, r driver.Request) error {
	if r.MinHold <= 0 {
		return nil
	}
	return q.SetRest(ctx, sqlitedb.SetRestParams{Name: r.Name, Rest: r.MinHold.Microseconds()})
}

func (e *engine) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	var token int64
	var outcome driver.Outcome
	err := e.db.writeAs(ctx, writing{relaxed: true}, func(ctx context.Context, w *writer) (err error) {
		token, outcome, err = enqueue(ctx, w, rs)
		return err
	})
	rouse(rs[0].Session) // after an error too: the commit may have been made
	switch {
	case err != nil:
		return driver.Grant{}, driver.Gone, err
	case outcome == driver.Granted:
		return driver.Grant{Token: token, Lease: rs[0].Lease, Contended: len(rs) > 1}, outcome, nil
	}
	return driver.Grant{}, outcome, nil
}

func enqueue(ctx context.Context, w *writer, rs []driver.Request) (token int64, outcome driver.Outcome, err error) {
	r := rs[0]
	there, ok, err := found(w.RoomOf(ctx, r.Name))
	if err != nil || !ok {
		return 0, driver.Gone, err
	}
	is := standing(there)
	outcome = driver.Queued
	if is.Free(r) {
		var taken bool
		if token, taken, err = take(ctx, w, r); err != nil {
			return 0, driver.Gone, err
		}
		if taken {
			outcome, rs = driver.Granted, rs[1:]
		}
	}
	capacity, collides := is.Join(r)
	if collides {
		return 0, driver.Gone, fmt.Errorf("%w: %q has %d units, the request is for one of %d: readers and permits do not share a name",
			driver.ErrCapacity, r.Name, capacity, r.Of)
	}
	return token, outcome, join(ctx, w.Queries, rs, capacity)
}

// join adds places of one name and session to the end of its queue.
func join(ctx context.Context, q *sqlitedb.Queries, rs []driver.Request, capacity int) error {
	if len(rs) == 0 {
		return nil
	}
	r := rs[0]
	ticket, err := q.TakeTickets(ctx, sqlitedb.TakeTicketsParams{Name: r.Name, Many: int64(len(rs)), Capacity: int64(capacity)})
	if err != nil {
		return err
	}
	if len(rs) == 1 {
		return q.AddWaiter(ctx, sqlitedb.AddWaiterParams{
			Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Units: int64(r.Units), Capacity: int64(r.Of), MinHold: r.MinHold.Microseconds(), Passable: r.Passable,
		})
	}
	places, err := json.Marshal(placesOf(rs))
	if err != nil {
		return err
	}
	return q.AddWaiters(ctx, sqlitedb.AddWaitersParams{Name: r.Name, Ticket: ticket, Session: r.Session, Places: string(places)})
}

// placesOf is what AddWaiters reads.
func placesOf(rs []driver.Request) []any {
	places := make([]any, len(rs))
	for i, r := range rs {
		places[i] = struct {
			Host, Thread, Attempt, Metadata string
			Lease, MinHold                  int64
			Passable                        bool
		}{r.Host, r.Thread, r.Attempt, r.Metadata, r.Lease.Microseconds(), r.MinHold.Microseconds(), r.Passable}
	}
	return places
}

// TakeAll stops at the first name that is not free; what it took before stays taken.
func (e *engine) TakeAll(ctx context.Context, rs []driver.Request) ([]driver.Grant, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	var grants []driver.Grant
	err := e.db.writeAs(ctx, writing{patience: patienceOf(rs[0]), relaxed: true}, func(ctx context.Context, w *writer) error {
		grants = nil
		for _, r := range rs {
			token, taken, err := take(ctx, w, r)
			if err != nil || !taken {
				return err
			}
			grants = append(grants, driver.Grant{Token: token, Lease: r.Lease})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// Batch waits for another transaction no longer than the least patient of its requests may.
func (e *engine) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	patience := time.Duration(0)
	for _, r := range takes {
		patience = max(patience, patienceOf(r)) // 0 is without end
	}
	err = e.db.writeAs(ctx, writing{patience: patience, relaxed: true}, func(ctx context.Context, w *writer) (err error) {
		grants, released = make([]driver.Grant, len(takes)), make([]bool, len(releases))
		for i, r := range takes {
			token, taken, err := take(ctx, w, r)
			if err != nil {
				return err
			}
			if taken {
				grants[i] = driver.Grant{Token: token, Lease: r.Lease}
			}
		}
		for i, h := range releases {
			if released[i], err = releaseIdle(ctx, w.Queries, h); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return grants, released, nil
}

// releaseIdle releases what nobody waits for.
func releaseIdle(ctx context.Context, q *sqlitedb.Queries, h driver.Held) (bool, error) {
	if !h.Shared {
		n, err := q.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: h.Name, Session: h.Session, Token: h.Token})
		return n > 0, err
	}
	units, held, err := found(q.DropIdleShare(ctx, sqlitedb.DropIdleShareParams{
		Name: h.Name, Session: h.Session, Token: h.Token,
	}))
	if err != nil || !held {
		return false, err
	}
	_, err = q.ReturnUnits(ctx, sqlitedb.ReturnUnitsParams{Name: h.Name, Units: units})
	return true, err
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var row sqlitedb.ReenterRow
	var there bool
	_, err := e.change(ctx, writing{patience: patienceOf(r)}, r.Session, func(ctx context.Context, t *transition) error {
		var old sqlitedb.HolderOfRow
		var err error
		old, there, err = found(t.q.HolderOf(ctx, sqlitedb.HolderOfParams{Name: r.Name, Host: r.Host, Thread: r.Thread}))
		if err != nil || !there {
			return err
		}
		if old.FirstToken < old.LastToken {
			if err := t.q.ResetMembers(ctx, sqlitedb.ResetMembersParams{Name: r.Name}); err != nil {
				return err
			}
		}
		row, err = t.q.Reenter(ctx, sqlitedb.ReenterParams{
			Name: r.Name, Session: r.Session, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		})
		if err == nil {
			err = setRest(ctx, t.q.Queries, r)
		}
		if err != nil {
			return err
		}
		return t.tell(ctx, old.Session, old.Attempt)
	})
	if err != nil || !there {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: row.Token, Contended: row.Waiters > 0, Lease: r.Lease}, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		p := sqlitedb.SetHoldsParams{Name: h.Name, Session: h.Session, Token: h.Token, Holds: int64(holds)}
		var n int64
		if h.Shared {
			n, err = q.SetShareHolds(ctx, sqlitedb.SetShareHoldsParams(p))
		} else {
			n, err = q.SetHolds(ctx, p)
		}
		if err == nil && n == 0 {
			return driver.ErrNotHeld
		}
		return err
	})
}

func (e *engine) Extend(ctx context.Context, h driver.Held, d time.Duration) (time.Duration, error) {
	var left int64
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		p := sqlitedb.ExtendLockParams{Lease: d.Microseconds(), Name: h.Name, Session: h.Session, Token: h.Token}
		var held bool
		if h.Shared {
			left, held, err = found(q.ExtendShare(ctx, sqlitedb.ExtendShareParams(p)))
		} else {
			left, held, err = found(q.ExtendLock(ctx, p))
		}
		if err == nil && !held {
			return driver.ErrNotHeld
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return microseconds(left), nil
}

func (e *engine) Raise(ctx context.Context, h driver.Held, token int64) (int64, error) {
	var raised int64
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		var held bool
		raised, held, err = found(q.RaiseToken(ctx, sqlitedb.RaiseTokenParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Floor: token,
		}))
		if err == nil && !held {
			return driver.ErrNotHeld
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return raised, nil
}

// found makes of the generated "no row" a false.
func found[T any](row T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
