package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/slots"
)

func (e *engine) BeginRun(
	ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry,
) (driver.Run, bool, error) {
	run, ours, err := slots.Begin(runTables{ctx, e}, r, slot, retry)
	return run, ours, mysqlserver.Interpret(err)
}

type runTables struct {
	ctx context.Context
	e   *engine
}

func (t runTables) Clock() (now int64, err error) {
	err = t.e.lone(t.ctx, func(q *mysqldb.Queries) (err error) {
		now, err = q.Clock(t.ctx)
		return err
	})
	return now, err
}

func (t runTables) About(a slots.About) (runs []slots.Row, err error) {
	err = t.e.read(t.ctx, func(q *mysqldb.Queries) error {
		rows, err := q.RunsAbout(t.ctx, mysqldb.RunsAboutParams{
			Name: a.Name, Number: a.Number, Later: a.Later, Begins: a.Begins, Below: a.Below, Retry: number01(a.Retry),
		})
		rows, err = whole(rows, err, func(r mysqldb.RunsAboutRow) bool { return r.Name == "" })
		runs = nil
		for _, row := range rows {
			runs = append(runs, slots.Row(row))
		}
		return err
	})
	return runs, err
}

func (t runTables) Claim(r slots.Row, over int64) (bool, error) {
	var claimed bool
	err := t.e.transact(t.ctx, func(q *mysqldb.Queries) (_ []string, err error) {
		if over == 0 {
			claimed, err = made(q.MakeRun(t.ctx, mysqldb.MakeRunParams{
				Name: r.Name, Slot: r.Slot, Token: r.Token, Session: r.SessionID, Host: r.Host, Thread: r.Thread,
				BeganAt: r.BeganAt, SlotEnds: r.SlotEnds,
			}))
			return nil, err
		}
		taken, err := q.TakeRun(t.ctx, mysqldb.TakeRunParams{
			Name: r.Name, Slot: r.Slot, Token: r.Token, Session: r.SessionID, Host: r.Host, Thread: r.Thread,
			BeganAt: r.BeganAt, Tries: int32(r.Tries), SlotEnds: r.SlotEnds, Replaced: over,
		})
		claimed = taken > 0
		return nil, err
	})
	return claimed && err == nil, err
}

func (e *engine) EndRun(ctx context.Context, r driver.Run) error {
	for range 2 { // the first statement may have been cut short
		var ended int64
		err := e.lone(ctx, func(q *mysqldb.Queries) (err error) {
			ended, err = q.EndRun(ctx, mysqldb.EndRunParams{
				Name: r.Name, Slot: r.Slot, Token: r.Token, Failed: r.Failed, Detail: r.Detail,
			})
			return err
		})
		if err != nil || ended != 0 {
			return err
		}
	}
	return driver.ErrNotHeld
}

func (e *engine) Runs(ctx context.Context, f driver.RunFilter, limit int) (runs []driver.Run, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		if f.Name == "" {
			rows, err := q.LatestRuns(ctx, mysqldb.LatestRunsParams{After: f.After, Limit: count(limit)})
			runs = slots.List(rows)
			return err
		}
		rows, err := q.Runs(ctx, mysqldb.RunsParams{Name: f.Name, Before: slots.Before(f.Before), Limit: count(limit)})
		runs = slots.List(rows)
		return err
	})
	return runs, mysqlserver.Interpret(err)
}
