package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) WaitGraph(ctx context.Context, from []driver.Waiting) ([]driver.Wait, error) {
	var row postgresdb.WaitGraphRow
	var waits []driver.Wait
	err := e.db.exec(ctx, query(postgresdb.WaitGraph, list(driver.Attempts(from))).into(&row, func() {
		waits = append(waits, driver.Wait{
			Name: row.Name, Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
			Holds: row.Holds,
			Units: int(row.Units), Capacity: int(row.Capacity), Need: int(row.Need), Since: time.UnixMicro(row.Since),
		})
	}))
	return waits, pgserver.Interpret(err)
}
