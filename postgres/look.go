package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	var rows []inspection.Row
	err := e.db.exec(ctx, look(session, names, &rows))
	return inspection.States(session, rows), pgserver.Interpret(err)
}

func look(session string, names []string, rows *[]inspection.Row) statement {
	var row inspection.Row
	return query(postgresdb.Look, postgresdb.LookParams{Session: session, Names: list(names)}).into(&row, func() { *rows = append(*rows, row) })
}
