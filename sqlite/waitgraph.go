package sqlite

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
)

func (e *engine) WaitGraph(ctx context.Context, from []driver.Waiting) ([]driver.Wait, error) {
	var in []string
	for _, p := range from {
		in = append(in, p.Name)
	}
	names, err := jsonOf(in)
	if err != nil {
		return nil, err
	}
	attempts, err := jsonOf(driver.Attempts(from))
	if err != nil {
		return nil, err
	}
	var waits []driver.Wait
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.WaitGraph(ctx, sqlitedb.WaitGraphParams{Names: names, Attempts: attempts})
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
