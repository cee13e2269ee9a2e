package mysql

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (e *engine) Record(ctx context.Context, events []protocol.Event) error {
	if len(events) == 0 {
		return nil
	}
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		for _, event := range events {
			if err := addEvent(ctx, q, event); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

func addEvent(ctx context.Context, q *mysqldb.Queries, e protocol.Event) error {
	return q.AddEvent(ctx, mysqldb.AddEventParams{
		Name: e.Name, Kind: e.Kind, Token: e.Token, Session: e.Session, Host: e.Host, Thread: e.Thread,
		Detail: e.Detail, Metadata: plainJSON(e.Metadata),
	})
}

func (e *engine) Events(ctx context.Context, f driver.EventFilter, limit int) (events []protocol.Event, err error) {
	kinds := strings.Join(f.Kinds, ",")
	all := mysqldb.EventsParams{After: f.After, Below: f.Below(), Kinds: kinds, Limit: count(limit)}
	of := mysqldb.EventsOfParams{Name: f.Name, After: f.After, Below: f.Below(), Kinds: kinds, Limit: count(limit)}
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		var rows []mysqldb.DblockEvent
		switch {
		case f.Name == "" && f.Newest:
			rows, err = q.NewestEvents(ctx, mysqldb.NewestEventsParams(all))
		case f.Name == "":
			rows, err = q.Events(ctx, all)
		case f.Newest:
			rows, err = q.NewestEventsOf(ctx, mysqldb.NewestEventsOfParams(of))
		default:
			rows, err = q.EventsOf(ctx, of)
		}
		for _, row := range rows {
			events = append(events, protocol.Event{
				ID: row.ID, At: time.UnixMicro(row.At), Name: row.Name, Kind: row.Kind, Token: row.Token,
				Session: row.SessionID,
				Host:    row.Host, Thread: row.Thread, Detail: row.Detail, Metadata: row.Metadata,
			})
		}
		return err
	})
	return events, mysqlserver.Interpret(err)
}

func (e *engine) EventsSince(ctx context.Context, since time.Time) (after int64, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		lowest, err := q.EventsSince(ctx, since.UnixMicro())
		if after = lowest - 1; lowest == 0 {
			after = math.MaxInt64
		}
		return err
	})
	return after, mysqlserver.Interpret(err)
}

func (e *engine) PurgeRecords(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	var events []int64
	var runs []mysqldb.OldRunsRow
	err = e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		events, err = q.OldEvents(ctx, mysqldb.OldEventsParams{Keep: keep.Microseconds(), Limit: count(limit)})
		if err == nil {
			runs, err = q.OldRuns(ctx, mysqldb.OldRunsParams{Keep: keep.Microseconds(), Limit: count(limit)})
		}
		return err
	})
	if err != nil || len(events)+len(runs) == 0 {
		return 0, err
	}
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		deleted = 0
		for _, id := range events {
			n, err := q.DropEvent(ctx, id)
			if err != nil {
				return nil, err
			}
			deleted += int(n)
		}
		for _, run := range runs {
			n, err := q.DropRun(ctx, mysqldb.DropRunParams(run))
			if err != nil {
				return nil, err
			}
			deleted += int(n)
		}
		return nil, nil
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// Incarnation begins one if there is none.
func (e *engine) Incarnation(ctx context.Context, renew bool, floor int64) (in driver.Incarnation, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		row, there, err := find(ctx, func(ctx context.Context, _ struct{}) (mysqldb.IncarnationRow,
			error) {
			return q.Incarnation(ctx)
		}, struct{}{})
		if err != nil {
			return nil, err
		}
		if !there {
			if in.Fresh, err = made(q.BeginIncarnation(ctx, max(floor, 0))); err != nil {
				return nil, err
			}
		}
		if renew && floor >= 0 {
			if err := q.RenewIncarnation(ctx, floor); err != nil {
				return nil, err
			}
		}
		if !there || renew {
			if row, err = q.Incarnation(ctx); err != nil {
				return nil, err
			}
		}
		if in.Age, in.Floor = max(microseconds(row.Age), 0), row.TokenFloor; floor < 0 {
			in.Floor, err = q.HighestToken(ctx)
		}
		return nil, err
	})
	if err != nil {
		return driver.Incarnation{}, err
	}
	return in, nil
}

// count converts a limit for the statements.
func count(limit int) int32 { return int32(min(limit, math.MaxInt32)) }
