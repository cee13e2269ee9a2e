package postgres

import (
	"context"
	"math"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// BeginRun claims the slot in one statement. Where another call has it, a second transaction reads
// whose run it is, or passes it on: by then the slot may be over, and it is still that slot.
func (e *engine) BeginRun(ctx context.Context, r driver.Run, slot driver.Slot, retry bool) (driver.Run, bool, error) {
	if slot.Length == 0 {
		return e.beginMoment(ctx, r, slot.Moment, retry)
	}
	var claim postgresdb.ClaimRunRow
	var there bool
	err := e.transact(ctx, query(postgresdb.ClaimRun, postgresdb.ClaimRunParams{
		SlotLength: slot.Length.Microseconds(), Name: r.Name, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread, Retry: retry,
	}).found(&claim, &there))
	switch {
	case err != nil:
		return driver.Run{}, false, pgserver.Interpret(err)
	case claim.BeganAt == 0: // the run of another interval is not passed on: its slot may be over
		return e.passRun(ctx, r, claim.RunSlot, retry && claim.Same)
	}
	return driver.Run{
		Name: r.Name, Slot: claim.Slot, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread,
		Began: time.UnixMicro(claim.BeganAt), Tries: 1, SlotEnds: time.UnixMicro((claim.Slot + 1) * slot.Length.Microseconds()),
	}, true, nil
}

// beginMoment is BeginRun for a moment.
func (e *engine) beginMoment(ctx context.Context, r driver.Run, moment int64, retry bool) (driver.Run, bool, error) {
	var claim postgresdb.ClaimMomentRow
	var there bool
	err := e.transact(ctx, query(postgresdb.ClaimMoment, postgresdb.ClaimMomentParams{
		Moment: moment, Ahead: driver.MaxAhead.Microseconds(),
		Name: r.Name, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread, Retry: retry,
	}).found(&claim, &there))
	switch {
	case err != nil:
		return driver.Run{}, false, pgserver.Interpret(err)
	case claim.Early:
		return driver.Run{}, false, driver.ErrFuture
	case claim.BeganAt == 0:
		return e.passRun(ctx, r, claim.RunSlot, retry && claim.Same)
	}
	r.Slot, r.SlotEnds, r.Began, r.Tries = moment, time.UnixMicro(moment), time.UnixMicro(claim.BeganAt), 1
	return r, true, nil
}

// passRun has the claim of a slot pass on to a run, where it may, and tells whose it is now. A
// claim of the same token that has not ended is that of the same call, whose answer was lost.
func (e *engine) passRun(ctx context.Context, r driver.Run, slot int64, retry bool) (driver.Run, bool, error) {
	var token int64
	var there, passed bool
	var again postgresdb.ReclaimRunRow
	var is []driver.Run
	statements := []statement{query(postgresdb.LockRun, postgresdb.LockRunParams{Name: r.Name, Slot: slot}).found(&token, &there)}
	if retry {
		statements = append(statements, query(postgresdb.ReclaimRun, postgresdb.ReclaimRunParams{
			Name: r.Name, Slot: slot, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread,
		}).found(&again, &passed))
	}
	err := e.transact(ctx, append(statements, runs(r.Name, slot, time.Time{}, 1, &is))...)
	if err != nil || len(is) == 0 || is[0].Slot != slot { // none: it was purged
		return driver.Run{}, false, pgserver.Interpret(err)
	}
	return is[0], passed || is[0].Token == r.Token && is[0].Ended.IsZero(), nil
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

func (e *engine) Runs(ctx context.Context, name string, before time.Time, limit int) ([]driver.Run, error) {
	var list []driver.Run
	err := e.db.exec(ctx, runs(name, -1, before, limit, &list))
	return list, pgserver.Interpret(err)
}

func (e *engine) LatestRuns(ctx context.Context, after string, limit int) ([]driver.Run, error) {
	var list []driver.Run
	err := e.db.exec(ctx, readRuns(query(postgresdb.LatestRuns, postgresdb.LatestRunsParams{After: after, Most: int32(limit)}), &list))
	return list, pgserver.Interpret(err)
}

func runs(name string, slot int64, before time.Time, limit int, list *[]driver.Run) statement {
	p := postgresdb.RunsParams{Name: name, Slot: slot, Before: math.MaxInt64, Most: int32(limit)}
	if !before.IsZero() {
		p.Before = before.UnixMicro()
	}
	return readRuns(query(postgresdb.Runs, p), list)
}

// readRuns has a statement, whose rows are those of Runs, append what it reads to a list.
func readRuns(s statement, list *[]driver.Run) statement {
	var row postgresdb.RunsRow
	return s.into(&row, func() {
		r := driver.Run{
			Name: row.Name, Slot: row.Slot, Token: row.Token, Session: row.SessionID, Host: row.Host, Thread: row.Thread,
			Began: time.UnixMicro(row.BeganAt), Failed: row.Failed, Detail: row.Detail, Tries: int(row.Tries),
			SlotEnds: time.UnixMicro(row.SlotEnds),
		}
		if row.EndedAt > 0 {
			r.Ended = time.UnixMicro(row.EndedAt)
		}
		*list = append(*list, r)
	})
}
