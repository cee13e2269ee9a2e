package sqlite

import (
	"context"
	"encoding/json"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
)

func (e *engine) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	var states []driver.State
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		states, err = read(ctx, q, session, names, waiters)
		return err
	})
	return states, err
}

func read(
	ctx context.Context, q *sqlitedb.Queries, session string, names []string, waiters int,
) ([]driver.State, error) {
	return inspection.Read(session, names, waiters, func(names []string) (seen []inspection.Row, err error) {
		list, err := jsonOf(names)
		if err != nil {
			return nil, err
		}
		rows, err := q.Read(ctx, sqlitedb.ReadParams{Session: session, Names: list})
		for _, row := range rows {
			seen = append(seen, inspection.Row(row))
		}
		return seen, err
	}, func(names []string, places int) (seen []inspection.Row, err error) {
		list, err := jsonOf(names)
		if err != nil {
			return nil, err
		}
		rows, err := q.ReadAll(ctx, sqlitedb.ReadAllParams{Session: session, Names: list, Most: int64(places)})
		for _, row := range rows {
			seen = append(seen, inspection.Row(row))
		}
		return seen, err
	})
}

// jsonOf encodes a list as a parameter of a statement.
func jsonOf(list []string) (string, error) {
	if list == nil {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}
