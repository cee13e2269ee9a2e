package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/slots"
)

// shownRuns returns the runs of a name as an engine's statement reads them.
func (d *DB) shownRuns(name string) []slots.Row {
	rows := make([]slots.Row, len(d.RunRows[name]))
	for i, r := range d.RunRows[name] {
		rows[i] = *r
		rows[i].NowUs, rows[i].SessionExpiresAt = d.Micros(), d.expiry(r.SessionID)
	}
	return rows
}

func (l *Link) BeginRun(
	ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry,
) (begun driver.Run, ours bool, err error) {
	err = l.do(ctx, func() (err error) {
		begun, ours, err = slots.Begin(runTables{l.DB}, r, slot, retry)
		return err
	})
	return begun, ours, err
}

type runTables struct{ *DB }

func (d runTables) Clock() (int64, error) { return d.Micros(), nil }

func (d runTables) About(a slots.About) ([]slots.Row, error) { return d.shownRuns(a.Name), nil }

func (d runTables) Claim(r slots.Row, _ int64) (bool, error) {
	d.RunRows[r.Name] = append(slices.DeleteFunc(d.RunRows[r.Name],
		func(other *slots.Row) bool { return other.Slot == r.Slot }), &r)
	return true, nil
}

func (l *Link) EndRun(ctx context.Context, r driver.Run) error {
	return l.do(ctx, func() error {
		i := slices.IndexFunc(l.RunRows[r.Name], func(other *slots.Row) bool {
			return other.Slot == r.Slot && other.Token == r.Token
		})
		if i < 0 {
			return driver.ErrNotHeld
		}
		ended := l.RunRows[r.Name][i]
		ended.EndedAt, ended.Failed, ended.Detail = l.Micros(), r.Failed, r.Detail
		return nil
	})
}

func (l *Link) Runs(ctx context.Context, f driver.RunFilter, limit int) ([]driver.Run, error) {
	return get(ctx, l, func() []driver.Run {
		var found []slots.Row
		if f.Name != "" {
			before := slots.Before(f.Before)
			found = slices.DeleteFunc(l.shownRuns(f.Name), func(r slots.Row) bool { return r.BeganAt >= before })
			slices.SortFunc(found, func(a, b slots.Row) int { return byTime(b, a) })
			return slots.List(found[:min(limit, len(found))])
		}
		for _, name := range slices.Sorted(maps.Keys(l.RunRows)) {
			if all := l.shownRuns(name); name > f.After && len(all) > 0 {
				found = append(found, slices.MaxFunc(all, byTime))
			}
		}
		return slots.List(found[:min(limit, len(found))])
	})
}

// byTime orders runs, the earlier first.
func byTime(a, b slots.Row) int {
	return cmp.Or(cmp.Compare(a.BeganAt, b.BeganAt), cmp.Compare(a.Slot, b.Slot))
}
