package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	var rows []inspection.Row
	err := e.db.exec(ctx, read(session, names, waiters, &rows))
	return inspection.States(session, waiters, rows), pgserver.Interpret(err)
}

func read(session string, names []string, waiters int, rows *[]inspection.Row) statement {
	s := query(postgresdb.Read, postgresdb.ReadParams{Session: session, Names: list(names)})
	if waiters > 0 {
		s = query(postgresdb.ReadAll, postgresdb.ReadAllParams{
			Session: session, Most: int32(waiters), Names: list(names),
		})
	}
	var row inspection.Row
	return s.into(&row, func() { *rows = append(*rows, row) })
}
