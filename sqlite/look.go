package sqlite

import (
	"context"
	"encoding/json"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
)

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	var states []driver.State
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		states, err = look(ctx, q, session, names)
		return err
	})
	return states, err
}

func look(ctx context.Context, q *sqlitedb.Queries, session string, names []string) ([]driver.State, error) {
	return inspection.Look(session, names, func(names []string) (seen []inspection.Row, err error) {
		list, err := jsonOf(names)
		if err != nil {
			return nil, err
		}
		rows, err := q.Look(ctx, sqlitedb.LookParams{Session: session, Names: list})
		for _, row := range rows {
			seen = append(seen, inspection.Row(row))
		}
		return seen, err
	}, func(names []string) (seen []inspection.Row, err error) {
		list, err := jsonOf(names)
		if err != nil {
			return nil, err
		}
		rows, err := q.LookShared(ctx, sqlitedb.LookSharedParams{Session: session, Names: list})
		for _, row := range rows {
			seen = append(seen, inspection.Row(row))
		}
		return seen, err
	})
}

// jsonOf is how a list goes into a statement.
func jsonOf(list []string) (string, error) {
	if list == nil {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}
