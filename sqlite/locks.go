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
	err := e.db.writeWithin(ctx, patienceOf(r), func(ctx context.Context, q *sqlitedb.Queries) (err error) {
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
	rouse(r.Session) // after an error too: the commit may have been made
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
	var nth int64
	err := e.db.writeWithin(ctx, patienceOf(r), func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		old, there, err = found(q.HolderOf(ctx, sqlitedb.HolderOfParams{Name: r.Name, Host: r.Host, Thread: r.Thread}))
		if err != nil || !there {
			return err
		}
		row, err = q.Reenter(ctx, sqlitedb.ReenterParams{
			Name: r.Name, Session: r.Session, Attempt: r.Attempt, Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		})
		if err == nil {
			nth, _, err = found(q.CountGrant(ctx, old.Session))
		}
		return err
	})
	if err != nil || !there {
		return driver.Grant{}, false, err
	}
	ring(old.Session, old.Attempt, nth)
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
	next, held, err := e.handOver(ctx, func(ctx context.Context, q *sqlitedb.Queries) (passed, error) {
		if !contended {
			n, err := q.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: h.Name, Session: h.Session, Token: h.Token})
			if err != nil || n > 0 {
				return passed{held: true}, err
			}
		}
		return pass(ctx, q, h.Session, sqlitedb.IsHeldParams{Name: h.Name, Session: h.Session, Token: h.Token})
	})
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return next, err
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) (driver.Handoff, error) {
	next, _, err := e.handOver(ctx, func(ctx context.Context, q *sqlitedb.Queries) (passed, error) {
		gone, err := q.LeaveQueue(ctx, sqlitedb.LeaveQueueParams{Name: name, Attempt: attempt})
		if err != nil {
			return passed{}, err
		}
		if gone > 0 {
			return passed{}, q.CountOff(ctx, sqlitedb.CountOffParams{Name: name, Gone: gone})
		}
		return pass(ctx, q, session, sqlitedb.IsHeldParams{Name: name, Session: session, Attempt: attempt})
	})
	return next, err
}

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) (driver.Handoff, bool, error) {
	return e.handOver(ctx, func(ctx context.Context, q *sqlitedb.Queries) (passed, error) {
		if holder.Session != "" { // otherwise an operator has freed the name
			if _, err := expire(ctx, q, holder.Session); err != nil {
				return passed{}, err
			}
		}
		return pass(ctx, q, self, sqlitedb.IsHeldParams{
			Name: name, Session: holder.Session, Token: holder.Grant.Token, Reclaim: true,
		})
	})
}

// passed is what became of a lock.
type passed struct {
	held bool // as it had to be
	next driver.Handoff
	nth  int64 // the number of the grant among those that next's session must hear of; 0: it need not
}

// handOver runs fn in a transaction, and rings the session to which the lock went.
func (e *engine) handOver(ctx context.Context, fn func(context.Context, *sqlitedb.Queries) (passed, error)) (driver.Handoff, bool, error) {
	var p passed
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		p, err = fn(ctx, q)
		return err
	})
	if err != nil {
		return driver.Handoff{}, false, err
	}
	if p.nth > 0 {
		ring(p.next.Session, p.next.Attempt, p.nth)
	}
	return p.next, p.held, nil
}

// pass gives a lock that is held as told to the first waiter whose session lives, or to nobody. Waiters before it are
// dead and leave the queue. self needs not hear of a grant to itself.
func pass(ctx context.Context, q *sqlitedb.Queries, self string, as sqlitedb.IsHeldParams) (passed, error) {
	if _, held, err := found(q.IsHeld(ctx, as)); err != nil || !held {
		return passed{}, err
	}
	next, there, err := found(q.FirstWaiter(ctx, as.Name))
	if err != nil {
		return passed{}, err
	}
	if !there {
		next.Ticket = math.MaxInt64
	}
	gone, err := q.DropWaiters(ctx, sqlitedb.DropWaitersParams{Name: as.Name, Ticket: next.Ticket})
	if err != nil {
		return passed{}, err
	}
	if !there {
		return passed{held: true}, q.SetFree(ctx, as.Name)
	}
	row, err := q.Grant(ctx, sqlitedb.GrantParams{
		Name: as.Name, Session: next.SessionID, Host: next.Host, Thread: next.Thread, Attempt: next.Attempt,
		Lease: next.Lease, Metadata: next.Metadata, Gone: gone,
	})
	if err != nil {
		return passed{}, err
	}
	p := passed{held: true, next: driver.Handoff{Session: next.SessionID, Attempt: next.Attempt, Grant: driver.Grant{
		Token: row.Token, Contended: row.Waiters > 0, Lease: microseconds(next.Lease),
	}}}
	if next.SessionID != self {
		p.nth, err = q.CountGrant(ctx, next.SessionID)
	}
	return p, err
}

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	var states []driver.State
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		states, err = look(ctx, q, session, names)
		return err
	})
	return states, err
}

func look(ctx context.Context, q *sqlitedb.Queries, session string, names []string) ([]driver.State, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	rows, err := q.Look(ctx, sqlitedb.LookParams{Session: session, Names: string(list)})
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
		h = h.WithFixedLease(microseconds(row.ExpiresAt.Int64 - row.NowUs))
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
