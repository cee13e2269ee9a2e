package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

func (e *engine) Record(ctx context.Context, events []driver.Event) error {
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

func addEvent(ctx context.Context, q *sqlitedb.Queries, ev driver.Event) error {
	return q.AddEvent(ctx, sqlitedb.AddEventParams{
		Name: ev.Name, Kind: ev.Kind, Token: ev.Token, Session: ev.Session, Host: ev.Host, Thread: ev.Thread,
		Detail: ev.Detail, Metadata: ev.Metadata,
	})
}

func (e *engine) Events(ctx context.Context, f driver.EventFilter, limit int) ([]driver.Event, error) {
	kinds, err := jsonOf(f.Kinds)
	if err != nil {
		return nil, err
	}
	all := sqlitedb.EventsParams{After: f.After, Below: f.Below(), Kinds: kinds, Most: int64(limit)}
	of := sqlitedb.EventsOfParams{Name: f.Name, After: f.After, Below: f.Below(), Kinds: kinds, Most: int64(limit)}
	var events []driver.Event
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
			events = append(events, driver.Event{
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

func (e *engine) BeginRun(ctx context.Context, r driver.Run, slot driver.Slot, retry bool) (driver.Run, bool, error) {
	var run driver.Run
	var ours bool
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		now, err := q.Clock(ctx)
		if err != nil {
			return err
		}
		if slot.Early(now) {
			return driver.ErrFuture
		}
		number, begins, ends := slot.At(now)
		at := sqlitedb.FindRunParams{Name: r.Name, Slot: number}
		row, there, err := found(q.FindRun(ctx, at))
		if err != nil {
			return err
		}
		same := there && row.SlotEnds == ends // else it is a run of another interval
		if same && (row.Token == r.Token || !retry || !row.Failed) {
			run, ours = runOf(row), row.Token == r.Token && !row.EndedAt.Valid
			return nil
		}
		if !same || slot.Length == 0 {
			other, counts, err := standsFor(ctx, q, r.Name, slot, begins, ends, retry)
			if err != nil || counts {
				run = runOf(other)
				return err
			}
		}
		err = q.ClaimRun(ctx, sqlitedb.ClaimRunParams{
			Name: r.Name, Slot: at.Slot, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread,
			BeganAt: now, SlotEnds: ends,
		})
		if err != nil {
			return err
		}
		row, err = q.FindRun(ctx, at)
		run, ours = runOf(row), true
		return err
	})
	if err != nil {
		return driver.Run{}, false, err
	}
	return run, ours, nil
}

// standsFor finds the run of another slot for which a slot counts as run.
func standsFor(ctx context.Context, q *sqlitedb.Queries, name string, slot driver.Slot, begins, ends int64, retry bool) (sqlitedb.FindRunRow, bool, error) {
	if slot.Length == 0 {
		later, there, err := found(q.FindLaterRun(ctx, sqlitedb.FindLaterRunParams{Name: name, Slot: slot.Moment}))
		if err != nil || there {
			return sqlitedb.FindRunRow(later), there, err
		}
		ends = math.MaxInt64
	}
	row, there, err := found(q.FindRunWithin(ctx, sqlitedb.FindRunWithinParams{Name: name, Begins: begins, Ends: ends, Retry: retry}))
	return sqlitedb.FindRunRow(row), there, err
}

func runOf(row sqlitedb.FindRunRow) driver.Run {
	r := driver.Run{
		Name: row.Name, Slot: row.Slot, Token: row.Token, Session: row.SessionID, Host: row.Host, Thread: row.Thread,
		Began: time.UnixMicro(row.BeganAt), Failed: row.Failed, Detail: row.Detail, Tries: int(row.Tries),
		SlotEnds: time.UnixMicro(row.SlotEnds),
	}
	if row.EndedAt.Valid {
		r.Ended = time.UnixMicro(row.EndedAt.Int64)
	}
	return r
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

func (e *engine) Runs(ctx context.Context, name string, before time.Time, limit int) ([]driver.Run, error) {
	began := int64(math.MaxInt64)
	if !before.IsZero() {
		began = before.UnixMicro()
	}
	var runs []driver.Run
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Runs(ctx, sqlitedb.RunsParams{Name: name, Before: began, Most: int64(limit)})
		runs = nil
		for _, row := range rows {
			runs = append(runs, runOf(sqlitedb.FindRunRow(row)))
		}
		return err
	})
	return runs, err
}

func (e *engine) LatestRuns(ctx context.Context, after string, limit int) ([]driver.Run, error) {
	var runs []driver.Run
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.LatestRuns(ctx, sqlitedb.LatestRunsParams{After: after, Most: int64(limit)})
		runs = nil
		for _, row := range rows {
			runs = append(runs, runOf(sqlitedb.FindRunRow(row)))
		}
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

// Incarnation writes only where there is nothing to read, or something to renew: it is asked with
// every lock of a quorum.
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
