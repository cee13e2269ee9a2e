package dblocktest

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (l *line) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) (next []driver.Handoff, err error) {
	err = l.do(ctx, func() error {
		next, err = l.change(how.Name, how.Make, transition)
		return err
	})
	return next, err
}

func (l *line) Take(ctx context.Context, r driver.Request) (grant driver.Grant, taken bool, err error) {
	_, err = l.Change(ctx, driver.How{Name: r.Name, Make: true}, func(n *protocol.Name) error {
		grant, taken = protocol.Take(n, r)
		return nil
	})
	return grant, taken, err
}

func (l *line) Join(ctx context.Context, r driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	_, err = l.Change(ctx, driver.How{Name: r.Name, Make: true}, func(n *protocol.Name) (err error) {
		grant, outcome, err = protocol.Join(n, r)
		return err
	})
	return grant, outcome, err
}

func (l *line) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	err = l.do(ctx, func() error {
		next, left, err = l.remove(r)
		return err
	})
	return next, left, err
}

func (l *line) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	grants, released = make([]driver.Grant, len(takes)), make([]bool, len(releases))
	err = l.do(ctx, func() error {
		for i, r := range takes {
			_, _ = l.change(r.Name, true, func(n *protocol.Name) error {
				grants[i], _ = protocol.Take(n, r)
				return nil
			})
		}
		for i, h := range releases {
			if row, _ := l.names.Row(h.Name); row.Waiters == 0 {
				_, released[i], _ = l.remove(protocol.Release(h, false, false))
			}
		}
		return nil
	})
	return grants, released, err
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
