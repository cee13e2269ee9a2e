package mysql

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/transaction"
)

// lend takes units of a locked name that has room for them, unless it rests.
func lend(ctx context.Context, q *mysqldb.Queries, row mysqldb.LockRowRow, r driver.Request) (driver.Grant, bool, error) {
	then := standing(row).With(r.Units, r.Of)
	token, err := q.TakeUnits(ctx, mysqldb.TakeUnitsParams{Name: r.Name, Units: int64(r.Units), Capacity: int64(then.Capacity), Mixed: number01(then.Mixed)})
	if err != nil || token == 0 {
		return driver.Grant{}, false, err
	}
	return driver.Grant{Token: token, Lease: r.Lease}, true, q.AddShare(ctx, mysqldb.AddShareParams{
		Name: r.Name, Token: token, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Units: int32(r.Units), Capacity: int32(r.Of), Lease: lease(r.Lease), Metadata: plainJSON(r.Metadata),
	})
}

// restate brings the capacity of a locked row up to date, where the holders state several numbers:
// a release may not have done that.
func restate(ctx context.Context, q *mysqldb.Queries, name string, row *mysqldb.LockRowRow) error {
	if !row.Mixed {
		return nil
	}
	stated, err := q.Stated(ctx, name)
	if stated.Smallest > 0 {
		row.Capacity = int32(stated.Smallest)
	}
	row.Mixed = stated.Smallest < stated.Largest
	return err
}

// part is what one holder has of a name whose row is locked. What it says holds until the
// transaction ends.
type part struct {
	name      string
	session   string
	attempt   string
	token     int64
	units     int32 // 0: the whole name
	expiresAt sql.NullInt64
}

// findPart finds what a session has with a token, as a whole or shared.
func findPart(ctx context.Context, q *mysqldb.Queries, name string, row mysqldb.LockRowRow, session string, token int64) (part, bool, error) {
	if row.SessionID != "" {
		there := row.SessionID == session && row.LastToken == token
		return part{name: name, session: session, attempt: row.Attempt, token: token, expiresAt: row.ExpiresAt}, there, nil
	}
	if row.SharedUnits == 0 {
		return part{}, false, nil
	}
	share, err := q.FindShare(ctx, mysqldb.FindShareParams{Name: name, Token: token})
	there, err := found(err)
	return part{name, session, share.Attempt, token, share.Units, share.ExpiresAt}, there && share.SessionID == session, err
}

// drop takes it off its holder, and off the row as it will be written. It reports false where the
// share was not there: then nothing must be taken off.
func (p part) drop(ctx context.Context, q *mysqldb.Queries, row *mysqldb.LockRowRow) (bool, error) {
	if p.units == 0 {
		row.SessionID = ""
		return true, nil
	}
	dropped, err := q.DropShare(ctx, mysqldb.DropShareParams{Name: transaction.Hex(p.name), Token: p.token})
	if err != nil || dropped == 0 {
		return false, err
	}
	row.SharedUnits = max(row.SharedUnits-p.units, 0)
	return true, nil
}

// leave is drop of what its holder gives up, or what is taken from it, with the members of its run:
// those that were served go too, the others wait again.
func (p part) leave(ctx context.Context, db mysqldb.DBTX, row *mysqldb.LockRowRow, served bool) (bool, error) {
	if p.units == 0 {
		if err := endRun(ctx, db, p.name, row, served); err != nil {
			return false, err
		}
	}
	return p.drop(ctx, mysqldb.New(db), row)
}

// setShareHolds leaves the name's row alone: the transactions that hold it are mostly others'.
func (e *engine) setShareHolds(ctx context.Context, h driver.Held, holds int) error {
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		_, err := q.LockShare(ctx, mysqldb.LockShareParams{Name: h.Name, Token: h.Token})
		if there, err := granted(err); err != nil || !there {
			return nil, notHeld(err)
		}
		held, err := q.SetShareHolds(ctx, mysqldb.SetShareHoldsParams{Name: h.Name, Session: h.Session, Token: h.Token, Holds: int64(holds)})
		if err != nil || held == 0 {
			return nil, notHeld(err)
		}
		return nil, nil
	})
}

// Downgrade copies the holder into a share and then hands on, as a release does that leaves one
// unit in use. A run must be settled before: a share has no members.
func (e *engine) Downgrade(ctx context.Context, h driver.Held) ([]driver.Handoff, error) {
	shared := false
	next, left, err := e.vacate(ctx, h.Name, h.Session, func(db mysqldb.DBTX, row *mysqldb.LockRowRow) (bool, []string, error) {
		q := mysqldb.New(db)
		p, there, err := findPart(ctx, q, h.Name, *row, h.Session, h.Token)
		if shared = there && p.units > 0; err != nil || !there || shared || row.FirstToken < row.LastToken {
			return false, nil, err
		}
		if _, err := capacityWith(*row, driver.Request{Name: h.Name, Units: 1, Of: driver.Readers}); err != nil {
			return false, nil, err
		}
		if err := q.ToShare(ctx, mysqldb.ToShareParams{Name: h.Name, Session: h.Session, Readers: driver.Readers}); err != nil {
			return false, nil, err
		}
		row.SessionID, row.SharedUnits, row.Capacity = "", 1, driver.Readers
		return true, nil, nil
	})
	if err == nil && !left && !shared {
		err = driver.ErrNotHeld
	}
	return next, err
}

func (e *engine) Upgrade(ctx context.Context, h driver.Held, attempt string) (grant driver.Grant, upgraded bool, err error) {
	err = e.transactAt(ctx, h.Name, func(q *mysqldb.Queries) ([]string, error) {
		row, there, err := e.lockRow(ctx, q, h.Name, true)
		if err != nil || !there {
			return nil, notHeld(err)
		}
		if row.SessionID == h.Session && row.Attempt == attempt {
			upgraded = true
			grant, err = grantOf(ctx, q, row.LastToken, row.Waiters, row.ExpiresAt)
			return nil, err
		}
		share, err := q.FindShareOfAttempt(ctx, mysqldb.FindShareOfAttemptParams{Name: h.Name, Attempt: attempt})
		if there, err := found(err); err != nil || !there || share.SessionID != h.Session || share.Token != h.Token {
			return nil, notHeld(err)
		}
		if row.SharedUnits != share.Units {
			return nil, nil
		}
		if _, err := q.DropShare(ctx, mysqldb.DropShareParams{Name: transaction.Hex(h.Name), Token: share.Token}); err != nil {
			return nil, err
		}
		token, err := q.ToLock(ctx, mysqldb.ToLockParams{
			Name: h.Name, Session: share.SessionID, Host: share.Host, Thread: share.Thread, Attempt: attempt,
			Holds: share.Holds, ExpiresAt: share.ExpiresAt, Metadata: share.Metadata,
		})
		if err != nil {
			return nil, err
		}
		upgraded = true
		grant, err = grantOf(ctx, q, token, row.Waiters, share.ExpiresAt)
		return nil, err
	})
	if err != nil || !upgraded {
		return driver.Grant{}, false, err
	}
	return grant, true, nil
}

// grantOf is a grant as it stands.
func grantOf(ctx context.Context, q *mysqldb.Queries, token int64, waiters int32, expiresAt sql.NullInt64) (driver.Grant, error) {
	grant := driver.Grant{Token: token, Contended: waiters > 0}
	if !expiresAt.Valid {
		return grant, nil
	}
	now, err := q.Clock(ctx)
	if grant.Lease = microseconds(expiresAt.Int64 - now); grant.Lease <= 0 {
		grant.Lease = -1
	}
	return grant, err
}

// notHeld is an error, or else that there is nothing.
func notHeld(err error) error {
	if err != nil {
		return err
	}
	return driver.ErrNotHeld
}
