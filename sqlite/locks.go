package sqlite

import (
	"context"
	"database/sql"
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
	err := e.db.writeRelaxed(ctx, patienceOf(r), func(ctx context.Context, q *sqlitedb.Queries) (lasting bool, err error) {
		token, taken, lasting, err = take(ctx, q, r)
		return lasting, err
	})
	if err != nil || !taken {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, nil
}

// take is one statement for the whole name, and two for units of it. lasting: see mustLast.
func take(ctx context.Context, q *sqlitedb.Queries, r driver.Request) (token int64, taken, lasting bool, err error) {
	if r.Units > 0 {
		return takeUnits(ctx, q, r)
	}
	row, taken, err := found(q.TakeLock(ctx, sqlitedb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}))
	if taken {
		err = setRest(ctx, q, r)
	}
	return row.Token, taken, taken && mustLast(row.Token, row.AcquiredAt, r.MinHold), err
}

func setRest(ctx context.Context, q *sqlitedb.Queries, r driver.Request) error {
	if r.MinHold <= 0 {
		return nil
	}
	return q.SetRest(ctx, sqlitedb.SetRestParams{Name: r.Name, Rest: r.MinHold.Microseconds()})
}

func (e *engine) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, driver.Outcome, error) {
	var token int64
	var outcome driver.Outcome
	err := e.db.writeRelaxed(ctx, 0, func(ctx context.Context, q *sqlitedb.Queries) (lasting bool, err error) {
		token, outcome, lasting, err = enqueue(ctx, q, r)
		return lasting, err
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

func enqueue(ctx context.Context, q *sqlitedb.Queries, r driver.Request) (token int64, outcome driver.Outcome, lasting bool, err error) {
	there, ok, err := found(q.RoomOf(ctx, r.Name))
	if err != nil || !ok {
		return 0, driver.Gone, false, err
	}
	is := standing(there)
	if is.Free(r) {
		if token, taken, lasting, err := take(ctx, q, r); err != nil || taken {
			return token, driver.Granted, lasting, err
		}
	}
	capacity, collides := is.Join(r)
	if collides {
		return 0, driver.Gone, false, fmt.Errorf("%w: %q is shared at present as %d units, not %d: all who share it must give the same number",
			driver.ErrCapacity, r.Name, capacity, r.Of)
	}
	ticket, err := q.TakeTicket(ctx, sqlitedb.TakeTicketParams{Name: r.Name, Capacity: int64(capacity)})
	if err != nil {
		return 0, driver.Gone, false, err
	}
	return 0, driver.Queued, false, q.AddWaiter(ctx, sqlitedb.AddWaiterParams{
		Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Units: int64(r.Units), MinHold: r.MinHold.Microseconds(),
	})
}

// TakeAll stops at the first name that is not free; what it took before stays taken.
func (e *engine) TakeAll(ctx context.Context, rs []driver.Request) ([]driver.Grant, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	var grants []driver.Grant
	err := e.db.writeRelaxed(ctx, patienceOf(rs[0]), func(ctx context.Context, q *sqlitedb.Queries) (lasting bool, err error) {
		grants = nil
		for _, r := range rs {
			token, taken, last, err := take(ctx, q, r)
			if err != nil || !taken {
				return lasting, err
			}
			lasting = lasting || last
			grants = append(grants, driver.Grant{Token: token, Lease: r.Lease})
		}
		return lasting, nil
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
	err = e.db.writeRelaxed(ctx, patience, func(ctx context.Context, q *sqlitedb.Queries) (lasting bool, err error) {
		grants, released = make([]driver.Grant, len(takes)), make([]bool, len(releases))
		for i, r := range takes {
			token, taken, last, err := take(ctx, q, r)
			if err != nil {
				return false, err
			}
			if taken {
				lasting = lasting || last
				grants[i] = driver.Grant{Token: token, Lease: r.Lease}
			}
		}
		for i, h := range releases {
			if released[i], err = releaseIdle(ctx, q, h); err != nil {
				return false, err
			}
		}
		return lasting, nil
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
	_, err := e.change(ctx, patienceOf(r), r.Session, func(ctx context.Context, t *transition) error {
		var old sqlitedb.HolderOfRow
		var err error
		old, there, err = found(t.q.HolderOf(ctx, sqlitedb.HolderOfParams{Name: r.Name, Host: r.Host, Thread: r.Thread}))
		if err != nil || !there {
			return err
		}
		row, err = t.q.Reenter(ctx, sqlitedb.ReenterParams{
			Name: r.Name, Session: r.Session, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		})
		if err == nil {
			err = setRest(ctx, t.q, r)
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
