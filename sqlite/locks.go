package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var token int64
	var taken bool
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		token, taken, err = found(q.TakeLock(ctx, sqlitedb.TakeLockParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		}))
		return err
	})
	if err != nil || !taken {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, nil
}

func (e *engine) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, driver.Outcome, error) {
	var token int64
	var outcome driver.Outcome
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		outcome = driver.Gone
		t, taken, err := found(q.TakeLocked(ctx, sqlitedb.TakeLockedParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		}))
		if err != nil || taken {
			token, outcome = t, driver.Granted
			return err
		}
		ticket, there, err := found(q.TakeTicket(ctx, r.Name))
		if err != nil || !there {
			return err
		}
		outcome = driver.Queued
		return q.JoinQueue(ctx, sqlitedb.JoinQueueParams{
			Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		})
	})
	switch {
	case err != nil:
		return driver.Grant{}, driver.Gone, err
	case outcome == driver.Granted:
		return driver.Grant{Token: token, Lease: r.Lease}, outcome, nil
	}
	return driver.Grant{}, outcome, nil
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var row sqlitedb.ReenterRow
	var old sqlitedb.HolderOfRow
	var there bool
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		old, there, err = found(q.HolderOf(ctx, sqlitedb.HolderOfParams{Name: r.Name, Host: r.Host, Thread: r.Thread}))
		if err != nil || !there {
			return err
		}
		row, err = q.Reenter(ctx, sqlitedb.ReenterParams{
			Name: r.Name, Session: r.Session, Attempt: r.Attempt, Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		})
		return err
	})
	if err != nil || !there {
		return driver.Grant{}, false, err
	}
	ring(old.Session, old.Attempt)
	return driver.Grant{Token: row.Token, Contended: row.Waiters > 0, Lease: r.Lease}, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		n, err := q.SetHolds(ctx, sqlitedb.SetHoldsParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Holds: int64(holds),
		})
		if err == nil && n == 0 {
			return driver.ErrNotHeld
		}
		return err
	})
}

func (e *engine) Release(ctx context.Context, h driver.Held, contended bool) (driver.Handoff, error) {
	next, held, err := e.handOver(ctx, h.Session, func(ctx context.Context, q *sqlitedb.Queries) (driver.Handoff, bool, error) {
		if !contended {
			n, err := q.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: h.Name, Session: h.Session, Token: h.Token})
			if err != nil || n > 0 {
				return driver.Handoff{}, true, err
			}
		}
		return pass(ctx, q, sqlitedb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token})
	})
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return next, err
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) (driver.Handoff, error) {
	next, _, err := e.handOver(ctx, session, func(ctx context.Context, q *sqlitedb.Queries) (driver.Handoff, bool, error) {
		gone, err := q.LeaveQueue(ctx, sqlitedb.LeaveQueueParams{Name: name, Attempt: attempt})
		if err != nil {
			return driver.Handoff{}, false, err
		}
		if gone > 0 {
			return driver.Handoff{}, false, q.CountOff(ctx, sqlitedb.CountOffParams{Name: name, Gone: gone})
		}
		return pass(ctx, q, sqlitedb.IsHeldParams{Name: name, Session: session, Attempt: attempt})
	})
	return next, err
}

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) (driver.Handoff, bool, error) {
	if holder.Session == "" {
		return driver.Handoff{}, false, nil
	}
	return e.handOver(ctx, self, func(ctx context.Context, q *sqlitedb.Queries) (driver.Handoff, bool, error) {
		if _, err := expire(ctx, q, holder.Session); err != nil {
			return driver.Handoff{}, false, err
		}
		return pass(ctx, q, sqlitedb.IsHeldParams{
			Name: name, Session: holder.Session, Token: holder.Grant.Token, Reclaim: true,
		})
	})
}

// handOver runs fn in a transaction, and rings the session to which the lock went unless it is the one that asks. It
// reports what fn does: whether the lock was held as it had to be.
func (e *engine) handOver(ctx context.Context, self string,
	fn func(context.Context, *sqlitedb.Queries) (driver.Handoff, bool, error)) (next driver.Handoff, held bool, err error) {
	err = e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		next, held, err = fn(ctx, q)
		return err
	})
	if err != nil {
		return driver.Handoff{}, false, err
	}
	if next.Session != "" && next.Session != self {
		ring(next.Session, next.Attempt)
	}
	return next, held, nil
}

// pass gives a lock to the first waiter whose session lives, or to nobody. Waiters before it are dead and leave the
// queue. It reports false where the lock is not held as p says.
func pass(ctx context.Context, q *sqlitedb.Queries, p sqlitedb.IsHeldParams) (driver.Handoff, bool, error) {
	if _, held, err := found(q.IsHeld(ctx, p)); err != nil || !held {
		return driver.Handoff{}, false, err
	}
	next, there, err := found(q.FirstWaiter(ctx, p.Name))
	if err != nil {
		return driver.Handoff{}, true, err
	}
	if !there {
		next.Ticket = math.MaxInt64
	}
	gone, err := q.DropWaiters(ctx, sqlitedb.DropWaitersParams{Name: p.Name, Ticket: next.Ticket})
	if err != nil {
		return driver.Handoff{}, true, err
	}
	if !there {
		return driver.Handoff{}, true, q.SetFree(ctx, p.Name)
	}
	row, err := q.Grant(ctx, sqlitedb.GrantParams{
		Name: p.Name, Session: next.SessionID, Host: next.Host, Thread: next.Thread, Attempt: next.Attempt,
		Lease: next.Lease, Metadata: next.Metadata, Gone: gone,
	})
	return driver.Handoff{Session: next.SessionID, Attempt: next.Attempt, Grant: driver.Grant{
		Token: row.Token, Contended: row.Waiters > 0, Lease: microseconds(next.Lease),
	}}, true, err
}

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	var rows []sqlitedb.LookRow
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		rows, err = q.Look(ctx, sqlitedb.LookParams{Session: session, Names: string(list)})
		return err
	})
	if err != nil {
		return nil, err
	}
	states := make([]driver.State, 0, len(names))
	index := make(map[string]int, len(names)) // where in states a name stands
	for _, row := range rows {
		i, seen := index[row.Name]
		if !seen {
			i, index[row.Name] = len(states), len(states)
			states = append(states, driver.State{Name: row.Name, Holder: holder(row), Waiters: int(row.Waiters)})
		}
		if row.Queued.Valid {
			states[i].Queued = append(states[i].Queued, row.Queued.String)
		}
	}
	return states, nil
}

func holder(row sqlitedb.LookRow) driver.Holder {
	if !row.SessionID.Valid {
		return driver.Holder{}
	}
	h := driver.Holder{
		Session: row.SessionID.String, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		Grant: driver.Grant{Token: row.Token, Contended: row.Waiters > 0},
		Since: time.UnixMicro(row.AcquiredAt), Left: microseconds(-row.NowUs),
	}
	if row.Dead.Valid && !row.Dead.Bool && row.SessionExpiresAt.Valid {
		h.Left = microseconds(row.SessionExpiresAt.Int64 - row.NowUs)
	}
	if row.ExpiresAt.Valid {
		lease := microseconds(row.ExpiresAt.Int64 - row.NowUs)
		h.Left = min(h.Left, lease)
		if lease <= 0 {
			lease = -1
		}
		h.Grant.Lease = lease
	}
	return h
}

// found makes of the generated "no row" a false.
func found[T any](row T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
