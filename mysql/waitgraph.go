package mysql

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// WaitGraph asks in chunks: a client has as many places as it has waiters.
func (e *engine) WaitGraph(ctx context.Context, from []driver.Waiting) (waits []driver.Wait, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		for some := range chunks(driver.Attempts(from)) {
			rows, err := q.WaitGraph(ctx, some)
			if rows, err = whole(rows, err, func(r mysqldb.WaitGraphRow) bool { return r.Name == "" }); err != nil {
				return err
			}
			for _, row := range rows {
				if row.Need > 0 {
					row.Capacity = row.Need + row.Room
				}
				waits = append(waits, driver.Wait{
					Name: row.Name, Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
					Holds: row.Holds,
					Units: int(row.Units), Capacity: int(row.Capacity), Need: int(row.Need),
					Since: time.UnixMicro(row.Since),
				})
			}
		}
		return nil
	})
	return waits, mysqlserver.Interpret(err)
}
