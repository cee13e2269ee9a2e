package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/slots"
)

func (e *engine) BeginRun(
	ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry,
) (driver.Run, bool, error) {
	run, ours, err := slots.Begin(runTables{ctx, e}, r, slot, retry)
	return run, ours, pgserver.Interpret(err)
}

type runTables struct {
	ctx context.Context
	e   *engine
}

func (t runTables) Clock() (now int64, err error) {
	var there bool
	err = t.e.db.exec(t.ctx, query(postgresdb.Clock, struct{}{}).found(&now, &there))
	return now, err
}

func (t runTables) About(a slots.About) ([]slots.Row, error) {
	return t.e.readRuns(t.ctx, query(postgresdb.RunsAbout, postgresdb.RunsAboutParams(a)))
}

func (t runTables) Claim(r slots.Row, over int64) (claimed bool, err error) {
	err = t.e.transact(t.ctx, query(postgresdb.ClaimRun, postgresdb.ClaimRunParams{
		Name: r.Name, Slot: r.Slot, Token: r.Token, Session: r.SessionID, Host: r.Host, Thread: r.Thread,
		BeganAt: r.BeganAt, Tries: int32(r.Tries), SlotEnds: r.SlotEnds, Replaced: over,
	}).found(new(postgresdb.ClaimRunRow), &claimed))
	return claimed, err
}

func (e *engine) EndRun(ctx context.Context, r driver.Run) error {
	var row postgresdb.EndRunRow
	var mine bool
	err := e.transact(ctx, query(postgresdb.EndRun, postgresdb.EndRunParams{
		Name: r.Name, Slot: r.Slot, Token: r.Token, Failed: r.Failed, Detail: r.Detail,
	}).found(&row, &mine))
	if err == nil && !mine {
		return driver.ErrNotHeld
	}
	return pgserver.Interpret(err)
}

func (e *engine) Runs(ctx context.Context, f driver.RunFilter, limit int) ([]driver.Run, error) {
	s := query(postgresdb.LatestRuns, postgresdb.LatestRunsParams{After: f.After, Most: int32(limit)})
	if f.Name != "" {
		s = query(postgresdb.Runs, postgresdb.RunsParams{
			Name: f.Name, Before: slots.Before(f.Before), Most: int32(limit),
		})
	}
	rows, err := e.readRuns(ctx, s)
	return slots.List(rows), pgserver.Interpret(err)
}

func (e *engine) readRuns(ctx context.Context, s statement) (rows []slots.Row, err error) {
	var row slots.Row
	err = e.db.exec(ctx, s.into(&row, func() { rows = append(rows, row) }))
	return rows, err
}
