package mysql

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// BeginRun decides by the run's row, which it makes or locks, and reads it in a later statement. A
// row whose slot ends at another time is that of another interval's slot with the same number.
func (e *engine) BeginRun(ctx context.Context, r driver.Run, of driver.Slot, retry bool) (run driver.Run, claimed bool, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		now, err := q.Clock(ctx)
		if err != nil {
			return nil, err
		}
		if of.Early(now) {
			return nil, driver.ErrFuture
		}
		slot, begins, ends := of.At(now)
		key := mysqldb.FindRunParams{Name: r.Name, Slot: slot}
		row, err := q.FindRun(ctx, key)
		there, err := found(err)
		if err != nil {
			return nil, err
		}
		stale := there && row.SlotEnds != ends
		if !there || stale || of.Length == 0 {
			other, counts, err := standsFor(ctx, q, r.Name, of, begins, ends, retry)
			if err != nil {
				return nil, err
			}
			if counts {
				key.Slot = other
				row, err = q.FindRun(ctx, key)
				run = runOf(r.Name, other, row)
				return nil, err
			}
		}
		if !there {
			err := q.ClaimRun(ctx, mysqldb.ClaimRunParams{
				Name: r.Name, Slot: slot, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread, SlotEnds: ends,
			})
			if err != nil {
				return nil, err
			}
		} else if stale || retry && row.Token != r.Token { // also one that goes on: it may fail before the next statement
			if _, err := q.LockRun(ctx, mysqldb.LockRunParams(key)); err != nil {
				return nil, err
			}
		}
		if row, err = q.FindRun(ctx, key); err != nil {
			return nil, err
		}
		if there && row.Token != r.Token && (row.SlotEnds != ends || retry && failed(row)) {
			err := q.ReclaimRun(ctx, mysqldb.ReclaimRunParams{
				Name: r.Name, Slot: slot, Token: r.Token, Session: r.Session, Host: r.Host, Thread: r.Thread, SlotEnds: ends,
			})
			if err != nil {
				return nil, err
			}
			if row, err = q.FindRun(ctx, key); err != nil {
				return nil, err
			}
		}
		run, claimed = runOf(r.Name, slot, row), row.Token == r.Token && row.SessionID == r.Session && !row.EndedAt.Valid
		return nil, nil
	})
	if err != nil {
		return driver.Run{}, false, err
	}
	return run, claimed, nil
}

// standsFor finds the run of another slot for which a slot counts as run.
func standsFor(ctx context.Context, q *mysqldb.Queries, name string, of driver.Slot, begins, ends int64, retry bool) (slot int64, there bool, err error) {
	if of.Length == 0 {
		slot, err = q.FindLaterRun(ctx, mysqldb.FindLaterRunParams{Name: name, Slot: of.Moment})
		if there, err = found(err); there || err != nil {
			return slot, there, err
		}
		ends = math.MaxInt64
	}
	slot, err = q.FindRunWithin(ctx, mysqldb.FindRunWithinParams{Name: name, Begins: begins, Ends: ends, Retry: number01(retry)})
	there, err = found(err)
	return slot, there, err
}

// failed reports whether a run may be tried again: it said so, or its session is over before it
// said anything.
func failed(row mysqldb.FindRunRow) bool {
	return row.Failed || !row.EndedAt.Valid && row.Alive == 0
}

func runOf(name string, slot int64, row mysqldb.FindRunRow) driver.Run {
	return driver.Run{
		Name: name, Slot: slot, Token: row.Token, Session: row.SessionID, Host: row.Host, Thread: row.Thread,
		Began: time.UnixMicro(row.BeganAt), Ended: instant(row.EndedAt), Failed: row.Failed, Detail: row.Detail,
		Tries: int(row.Tries), SlotEnds: time.UnixMicro(row.SlotEnds),
	}
}

func instant(at sql.NullInt64) time.Time {
	if !at.Valid {
		return time.Time{}
	}
	return time.UnixMicro(at.Int64)
}

func (e *engine) EndRun(ctx context.Context, r driver.Run) error {
	ended, err := e.queries().EndRun(ctx, mysqldb.EndRunParams{
		Name: r.Name, Slot: r.Slot, Token: r.Token, Failed: r.Failed, Detail: r.Detail,
	})
	if err == nil && ended == 0 {
		return driver.ErrNotHeld
	}
	return mysqlserver.Interpret(err)
}

func (e *engine) Runs(ctx context.Context, name string, before time.Time, limit int) (runs []driver.Run, err error) {
	began := int64(math.MaxInt64)
	if !before.IsZero() {
		began = before.UnixMicro()
	}
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.Runs(ctx, mysqldb.RunsParams{Name: name, Before: began, Limit: count(limit)})
		for _, row := range rows {
			runs = append(runs, listedRun(row))
		}
		return err
	})
	return runs, mysqlserver.Interpret(err)
}

func (e *engine) LatestRuns(ctx context.Context, after string, limit int) (runs []driver.Run, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.LatestRuns(ctx, mysqldb.LatestRunsParams{After: after, Limit: count(limit)})
		for _, row := range rows {
			runs = append(runs, listedRun(row))
		}
		return err
	})
	return runs, mysqlserver.Interpret(err)
}

func listedRun(row mysqldb.DblockRun) driver.Run {
	return driver.Run{
		Name: row.Name, Slot: row.Slot, Token: row.Token, Session: row.SessionID, Host: row.Host, Thread: row.Thread,
		Began: time.UnixMicro(row.BeganAt), Ended: instant(row.EndedAt), Failed: row.Failed, Detail: row.Detail,
		Tries: int(row.Tries), SlotEnds: time.UnixMicro(row.SlotEnds),
	}
}
