package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
)

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
