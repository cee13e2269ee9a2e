package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
)

func (e *engine) Record(ctx context.Context, events []protocol.Event) error {
	if len(events) == 0 {
		return nil
	}
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		for _, ev := range events {
			if err := addEvent(ctx, q, ev); err != nil {
				return err
			}
		}
		return nil
	})
}

func addEvent(ctx context.Context, q *sqlitedb.Queries, ev protocol.Event) error {
	return q.AddEvent(ctx, sqlitedb.AddEventParams{
		Name: ev.Name, Kind: ev.Kind, Token: ev.Token, Session: ev.Session, Host: ev.Host, Thread: ev.Thread,
		Detail: ev.Detail, Metadata: ev.Metadata,
	})
}

func (e *engine) Events(ctx context.Context, f driver.EventFilter, limit int) ([]protocol.Event, error) {
	kinds, err := jsonOf(f.Kinds)
	if err != nil {
		return nil, err
	}
	all := sqlitedb.EventsParams{After: f.After, Below: f.Below(), Kinds: kinds, Most: int64(limit)}
	of := sqlitedb.EventsOfParams{Name: f.Name, After: f.After, Below: f.Below(), Kinds: kinds, Most: int64(limit)}
	var events []protocol.Event
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		var rows []sqlitedb.DblockEvent
		var err error
		switch {
		case f.Name == "" && f.Newest:
			rows, err = q.NewestEvents(ctx, sqlitedb.NewestEventsParams(all))
		case f.Name == "":
			rows, err = q.Events(ctx, all)
		case f.Newest:
			rows, err = q.NewestEventsOf(ctx, sqlitedb.NewestEventsOfParams(of))
		default:
			rows, err = q.EventsOf(ctx, of)
		}
		events = nil
		for _, row := range rows {
			events = append(events, protocol.Event{
				ID: row.ID, At: time.UnixMicro(row.At), Name: row.Name, Kind: row.Kind, Token: row.Token,
				Session: row.SessionID, Host: row.Host, Thread: row.Thread, Detail: row.Detail, Metadata: row.Metadata,
			})
		}
		return err
	})
	return events, err
}

func (e *engine) EventsSince(ctx context.Context, since time.Time) (after int64, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		lowest, err := q.EventsSince(ctx, since.UnixMicro())
		if after = lowest - 1; lowest == 0 {
			after = math.MaxInt64
		}
		return err
	})
	return after, err
}

func (e *engine) BeginRun(
	ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry,
) (run driver.Run, ours bool, err error) {
	err = e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		run, ours, err = slots.Begin(runTables{ctx, q}, r, slot, retry)
		return err
	})
	if err != nil {
		return driver.Run{}, false, err
	}
	return run, ours, nil
}

// runTables are the tables of runs in a transaction that writes.
type runTables struct {
	ctx context.Context
	q   *sqlitedb.Queries
}

func (t runTables) Clock() (int64, error) { return t.q.Clock(t.ctx) }

func (t runTables) About(a slots.About) (runs []slots.Row, err error) {
	rows, err := t.q.RunsAbout(t.ctx, sqlitedb.RunsAboutParams(a))
	for _, row := range rows {
		runs = append(runs, slots.Row(row))
	}
	return runs, err
}

func (t runTables) Claim(r slots.Row, _ int64) (bool, error) {
	return true, t.q.ClaimRun(t.ctx, sqlitedb.ClaimRunParams{
		Name: r.Name, Slot: r.Slot, Token: r.Token, Session: r.SessionID, Host: r.Host, Thread: r.Thread,
		BeganAt: r.BeganAt, Tries: r.Tries, SlotEnds: r.SlotEnds,
	})
}

func (e *engine) EndRun(ctx context.Context, r driver.Run) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		n, err := q.EndRun(ctx, sqlitedb.EndRunParams{
			Name: r.Name, Slot: r.Slot, Token: r.Token, Failed: r.Failed, Detail: r.Detail,
		})
		if err == nil && n == 0 {
			return driver.ErrNotHeld
		}
		return err
	})
}

func (e *engine) Runs(ctx context.Context, f driver.RunFilter, limit int) (runs []driver.Run, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		if f.Name == "" {
			rows, err := q.LatestRuns(ctx, sqlitedb.LatestRunsParams{After: f.After, Most: int64(limit)})
			runs = slots.List(rows)
			return err
		}
		rows, err := q.Runs(ctx, sqlitedb.RunsParams{Name: f.Name, Before: slots.Before(f.Before), Most: int64(limit)})
		runs = slots.List(rows)
		return err
	})
	return runs, err
}

func (e *engine) PurgeRecords(ctx context.Context, keep time.Duration, limit int) (int, error) {
	var deleted int64
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		events, err := q.PurgeEvents(ctx, sqlitedb.PurgeEventsParams{Keep: keep.Microseconds(), Most: int64(limit)})
		if err != nil {
			return err
		}
		runs, err := q.PurgeRuns(ctx, sqlitedb.PurgeRunsParams{Keep: keep.Microseconds(), Most: int64(limit)})
		deleted = events + runs
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(deleted), nil
}

// Incarnation writes only if there is nothing to read or it must renew: every lock of a quorum
// reads the incarnation.
func (e *engine) Incarnation(ctx context.Context, renew bool, floor int64) (driver.Incarnation, error) {
	var row sqlitedb.IncarnationRow
	there := false
	if !renew {
		err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			row, there, err = found(q.Incarnation(ctx))
			return err
		})
		if err != nil {
			return driver.Incarnation{}, err
		}
	}
	fresh := false
	if !there {
		err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			row, there, err = found(q.Incarnation(ctx))
			if err != nil || there && !renew {
				return err
			}
			fresh = !there
			if err := q.Incarnate(ctx, max(floor, 0)); err != nil {
				return err
			}
			row, err = q.Incarnation(ctx)
			return err
		})
		if err != nil {
			return driver.Incarnation{}, err
		}
	}
	if floor < 0 {
		err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			row.TokenFloor, err = q.HighestToken(ctx)
			return err
		})
		if err != nil {
			return driver.Incarnation{}, err
		}
	}
	return driver.Incarnation{Age: microseconds(row.Age), Floor: row.TokenFloor, Fresh: fresh}, nil
}
