package mysql

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/transaction"
)

// TakeAll locks all rows in one statement. Where one is missing, or somebody has it locked, it
// begins again and goes from name to name, so that it never has a row and waits for one before it:
// two that did would wait for each other.
func (e *engine) TakeAll(ctx context.Context, rs []driver.Request) (grants []driver.Grant, err error) {
	if len(rs) == 0 {
		return nil, nil
	}
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = r.Name
	}
	locked := false
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		rows, _, err := lockRows(ctx, q, names)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(rs, func(r driver.Request) bool {
			row, there := rows[r.Name]
			return !there || !standing(row).Free(r)
		})
		if n < 0 {
			n = len(rs)
		} else if _, there := rows[rs[n].Name]; !there {
			return nil, nil
		}
		locked = true
		grants, err = takeWhile(rs[:n], func(r driver.Request) (driver.Grant, bool, error) { return takeLocked(ctx, q, rows[r.Name], r) })
		return nil, err
	})
	if err == nil && !locked {
		err = e.transact(ctx, func(q *mysqldb.Queries) (_ []string, err error) {
			grants, err = takeWhile(rs, func(r driver.Request) (driver.Grant, bool, error) { return e.takeNext(ctx, q, r) })
			return nil, err
		})
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

func takeWhile(rs []driver.Request, take func(driver.Request) (driver.Grant, bool, error)) ([]driver.Grant, error) {
	var grants []driver.Grant
	for _, r := range rs {
		grant, taken, err := take(r)
		if err != nil || !taken {
			return grants, err
		}
		grants = append(grants, grant)
	}
	return grants, nil
}

// lockRows locks those rows that are there and that nobody else has locked. now is a time before
// that.
func lockRows(ctx context.Context, q *mysqldb.Queries, names []string) (locked map[string]mysqldb.LockRowRow, now int64, err error) {
	locked = make(map[string]mysqldb.LockRowRow, len(names))
	for some := range chunks(names) {
		rows, err := q.LockRows(ctx, some)
		if err != nil {
			return nil, 0, err
		}
		for _, row := range rows {
			now = row.NowUs
			locked[row.Name] = mysqldb.LockRowRow{
				SessionID: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Token, FirstToken: row.FirstToken, LastToken: row.LastToken, ExpiresAt: row.ExpiresAt,
				Waiters: row.Waiters, SharedUnits: row.SharedUnits, Capacity: row.Capacity, Mixed: row.Mixed, RestsUntil: row.RestsUntil,
			}
		}
	}
	return locked, now, nil
}

// returnShare releases a share of a locked name that nobody waits for.
func returnShare(ctx context.Context, q *mysqldb.Queries, h driver.Held, row mysqldb.LockRowRow) (bool, error) {
	p, there, err := findPart(ctx, q, h.Name, row, h.Session, h.Token)
	if err != nil || !there || p.units == 0 {
		return false, err
	}
	if dropped, err := p.drop(ctx, q, &row); err != nil || !dropped {
		return false, err
	}
	return true, q.ReturnUnits(ctx, mysqldb.ReturnUnitsParams{Name: transaction.Hex(h.Name), Units: int64(p.units)})
}
