package sqlite

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

func takeUnits(ctx context.Context, w *writer, r driver.Request) (token int64, taken bool, err error) {
	row, taken, err := found(w.TakeUnits(ctx, sqlitedb.TakeUnitsParams{
		Name: r.Name, Units: int64(r.Units), Capacity: int64(r.Of),
	}))
	if err != nil || !taken {
		return 0, false, err
	}
	w.keep(row.Token, row.AcquiredAt, r.MinHold)
	return row.Token, true, w.AddShare(ctx, sqlitedb.AddShareParams{
		Name: r.Name, Token: row.Token, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Units: int64(r.Units), Capacity: int64(r.Of), Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	})
}

// grantUnits gives units to a waiter.
func (t *transition) grantUnits(ctx context.Context, name string, w sqlitedb.FirstWaiterRow, gone, now int64) (sqlitedb.GiveLockRow, error) {
	row, err := t.q.GiveUnits(ctx, sqlitedb.GiveUnitsParams{Name: name, Units: w.Units, Capacity: w.Capacity, Gone: gone, Now: now})
	if err != nil {
		return sqlitedb.GiveLockRow{}, err
	}
	return sqlitedb.GiveLockRow{FirstToken: row.Token, Waiters: row.Waiters}, t.q.AddShare(ctx, sqlitedb.AddShareParams{
		Name: name, Token: row.Token, Session: w.SessionID, Host: w.Host, Thread: w.Thread, Attempt: w.Attempt,
		Units: w.Units, Capacity: w.Capacity, Lease: w.Lease, Metadata: w.Metadata,
	})
}

// Downgrade keeps the token: what was fenced by it stays so, and there was no moment without a
// holder.
func (e *engine) Downgrade(ctx context.Context, h driver.Held) ([]driver.Handoff, error) {
	return e.change(ctx, writing{}, h.Session, func(ctx context.Context, t *transition) error {
		n, err := t.q.ToShare(ctx, sqlitedb.ToShareParams{Name: h.Name, Session: h.Session, Token: h.Token, Readers: driver.Readers})
		if err != nil {
			return err
		}
		if n == 0 {
			_, already, err := found(t.q.AttemptOf(ctx, sqlitedb.AttemptOfParams{Name: h.Name, Session: h.Session, Token: h.Token}))
			if err == nil && !already {
				err = driver.ErrNotHeld
			}
			return err
		}
		row, done, err := found(t.q.ToUnits(ctx, sqlitedb.ToUnitsParams{Name: h.Name, Capacity: driver.Readers}))
		if err == nil && !done {
			err = fmt.Errorf("%w: those who wait for %q want permits: keep the whole name, or release it",
				driver.ErrCapacity, h.Name)
		}
		if err == nil {
			_, err = t.handOn(ctx, h.Name, room(row))
		}
		return err
	})
}

// Upgrade goes before the waiters: they could not have had the name before this share is released.
func (e *engine) Upgrade(ctx context.Context, h driver.Held, attempt string) (driver.Grant, bool, error) {
	var grant driver.Grant
	var whole bool
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		grant, whole, err = possessed(ctx, q, h, attempt)
		if err != nil || whole {
			return err
		}
		share, held, err := found(q.FindShareOfAttempt(ctx, sqlitedb.FindShareOfAttemptParams{Name: h.Name, Session: h.Session, Attempt: attempt}))
		switch {
		case err != nil:
			return err
		case !held || share.Token != h.Token:
			return driver.ErrNotHeld
		}
		n, err := q.ToLock(ctx, sqlitedb.ToLockParams{
			Name: h.Name, Session: share.SessionID, Host: share.Host, Thread: share.Thread, Attempt: share.Attempt,
			Holds: share.Holds, ExpiresAt: share.ExpiresAt, Metadata: share.Metadata, Units: share.Units,
		})
		if err != nil || n == 0 {
			return err
		}
		if _, err := q.DropShare(ctx, sqlitedb.DropShareParams{Name: h.Name, Session: h.Session, Token: h.Token}); err != nil {
			return err
		}
		grant, whole, err = possessed(ctx, q, h, attempt)
		return err
	})
	if err != nil || !whole {
		return driver.Grant{}, false, err
	}
	return grant, true, nil
}

// possessed is the grant of an attempt that has the whole name.
func possessed(ctx context.Context, q *sqlitedb.Queries, h driver.Held, attempt string) (driver.Grant, bool, error) {
	row, whole, err := found(q.Possessed(ctx, sqlitedb.PossessedParams{Name: h.Name, Session: h.Session, Attempt: attempt}))
	if err != nil || !whole {
		return driver.Grant{}, false, err
	}
	holder := driver.Holder{Grant: driver.Grant{Token: row.LastToken, Contended: row.Waiters > 0}}
	if row.ExpiresAt.Valid {
		holder = holder.WithFixedLease(microseconds(row.ExpiresAt.Int64 - row.NowUs))
	}
	return holder.Grant, true, nil
}
