package memory

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run runs the ops one after the other.
func (l *Link) Run(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	err = l.do(ctx, func() error {
		results = make([]protocol.Result, len(ops))
		for i, op := range protocol.Together(ops) {
			result, err := l.Apply(op)
			if err != nil && len(ops) == 1 {
				return err
			}
			results[i] = result
		}
		return nil
	})
	return results, err
}

func (l *Link) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	return get(ctx, l, func() []driver.State {
		var rows []inspection.Row
		for _, name := range names {
			rows = append(rows, l.rows(name, session)...)
		}
		return inspection.States(session, waiters, rows)
	})
}

// rows returns the rows of a name, of its shares and of its queue, as a session sees them. Without
// a session ("") no place is its own.
func (d *DB) rows(name, session string) (rows []inspection.Row) {
	row, there := d.Locks.Row(name)
	if !there {
		return nil
	}
	add := func(part, place int64, h Holder) {
		r := d.rowOf(h)
		r.Name, r.Part, r.Place = name, part, place
		rows = append(rows, r)
	}
	add(inspection.Name, row.Token, whole(row))
	is := &rows[0]
	is.Units, is.Capacity = int64(row.Units), int64(row.Capacity)
	is.Waiters, is.RestsUntil = int64(row.Waiters), row.Rests
	for _, s := range d.Locks.Shares(name) {
		add(inspection.Share, s.Token, Holder{s, s.Token})
	}
	for _, p := range d.Locks.Places(name) {
		add(inspection.Place, p.Ticket, Holder{Share: protocol.Share{
			Session: p.Session, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt, Units: p.Units, Of: p.Of,
			Since: p.Since, Metadata: p.Metadata,
		}})
		if session != "" && p.Session == session {
			own := rows[0]
			own.Queued = p.Attempt
			rows = append(rows, own)
		}
	}
	return rows
}
