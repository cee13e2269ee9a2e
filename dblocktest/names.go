package dblocktest

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run runs the ops one after the other.
func (l *line) Run(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	err = l.do(ctx, func() error {
		results = make([]protocol.Result, len(ops))
		for i, op := range protocol.Together(ops) {
			result, err := l.run(op)
			if err != nil && len(ops) == 1 {
				return err
			}
			results[i] = result
		}
		return nil
	})
	return results, err
}

func (l *line) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	return get(ctx, l, func() []driver.State {
		var rows []inspection.Row
		for _, name := range names {
			rows = append(rows, l.look(name, session)...)
		}
		return inspection.States(session, rows)
	})
}

// look are the rows of a name for a session; of no session ("") no place is its own.
func (d *database) look(name, session string) (rows []inspection.Row) {
	headed := false
	for _, p := range d.describe(name) {
		r := p.Row()
		if r.Part != inspection.Place {
			rows = append(rows, r)
			continue
		}
		if session != "" && r.SessionID == session {
			own := rows[0]
			own.Queued = r.Attempt
			rows = append(rows, own)
		}
		if !headed && rows[0].SessionID == "" {
			headed, r.Part = true, inspection.Head
			rows = append(rows, r)
		}
	}
	return rows
}
