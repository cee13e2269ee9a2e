package sqlite

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
)

func (e *engine) WaitGraph(ctx context.Context, attempts []string) ([]driver.Wait, error) {
	list, err := jsonOf(attempts)
	if err != nil {
		return nil, err
	}
	var waits []driver.Wait
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.WaitGraph(ctx, list)
		waits = nil
		for _, row := range rows {
			waits = append(waits, driver.Wait{
				Name: row.Name, Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
				Holds: row.Holds, Units: int(row.Units), Capacity: int(row.Capacity), Need: int(row.Need),
				Since: time.UnixMicro(row.Since),
			})
		}
		return err
	})
	return waits, err
}
