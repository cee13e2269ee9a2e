package dblocktest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// run is a run of a job in its slot.
type run struct {
	driver.Run
	began, ended, slotEnds int64 // ended 0: it has not
}

// moment reports whether the slot is that of a moment.
func (r *run) moment() bool { return r.slotEnds == r.Slot }

// runAsSeen is a run as clients see it: one that has not ended has failed if its session is no more.
func (d *database) runAsSeen(r *run) driver.Run {
	s := r.Run
	s.Began, s.SlotEnds = timeOf(r.began), timeOf(r.slotEnds)
	if r.ended != 0 {
		s.Ended = timeOf(r.ended)
	} else {
		s.Failed = s.Failed || !d.alive(s.Session)
	}
	return s
}

func (l *line) BeginRun(ctx context.Context, r driver.Run, slot driver.Slot, retry bool) (begun driver.Run, ours bool, err error) {
	err = l.do(ctx, func() error {
		if slot.Early(l.now()) {
			return driver.ErrFuture
		}
		begun, ours = l.beginRun(r, slot, retry)
		return nil
	})
	return begun, ours, err
}

// beginRun claims a slot, unless it is claimed already, or counts as run.
func (d *database) beginRun(r driver.Run, slot driver.Slot, retry bool) (driver.Run, bool) {
	now := d.now()
	number, begins, ends := slot.At(now)
	r.Slot = number
	var there *run // of a slot with this number, whatever its interval
	for _, other := range d.runs[r.Name] {
		shown := d.runAsSeen(other)
		switch {
		case other.Slot == r.Slot && other.slotEnds == ends:
			if there = other; other.Token == r.Token || !retry || !shown.Failed {
				return shown, other.Token == r.Token && other.ended == 0
			}
		case other.Slot == r.Slot:
			there = other
		}
	}
	if there == nil || there.slotEnds != ends || slot.Length == 0 {
		if other := d.standsFor(r.Name, slot, begins, ends, retry); other != nil {
			return d.runAsSeen(other), false
		}
	}
	mine := &run{Run: r, began: now, slotEnds: ends}
	mine.Tries, mine.Failed, mine.Detail, mine.Ended = 1, false, "", time.Time{}
	if there != nil && there.slotEnds == ends {
		mine.Tries = there.Tries + 1
	}
	d.runs[r.Name] = append(slices.DeleteFunc(d.runs[r.Name], func(other *run) bool { return other == there }), mine)
	return d.runAsSeen(mine), true
}

// standsFor is the run of another slot for which a slot counts as run.
func (d *database) standsFor(name string, slot driver.Slot, begins, ends int64, retry bool) *run {
	for _, other := range d.runs[name] {
		if slot.Length == 0 && other.moment() && other.Slot > slot.Moment {
			return other
		}
	}
	if slot.Length == 0 {
		ends = math.MaxInt64
	}
	for _, other := range d.runs[name] {
		if other.slotEnds > begins && other.began >= begins && other.began < ends && !(retry && d.runAsSeen(other).Failed) {
			return other
		}
	}
	return nil
}

func (l *line) EndRun(ctx context.Context, r driver.Run) error {
	return l.do(ctx, func() error {
		i := slices.IndexFunc(l.runs[r.Name], func(other *run) bool { return other.Slot == r.Slot && other.Token == r.Token })
		if i < 0 {
			return driver.ErrNotHeld
		}
		ended := l.runs[r.Name][i]
		ended.ended, ended.Failed, ended.Detail = l.now(), r.Failed, r.Detail
		return nil
	})
}

func (l *line) LatestRuns(ctx context.Context, after string, limit int) ([]driver.Run, error) {
	return get(ctx, l, func() (latest []driver.Run) {
		for _, name := range slices.Sorted(maps.Keys(l.runs)) {
			if all := l.runs[name]; name > after && len(all) > 0 && len(latest) < limit {
				latest = append(latest, l.runAsSeen(slices.MaxFunc(all, byTime)))
			}
		}
		return latest
	})
}

// byTime orders runs, the earlier first.
func byTime(a, b *run) int { return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.Slot, b.Slot)) }

func (l *line) Runs(ctx context.Context, name string, before time.Time, limit int) ([]driver.Run, error) {
	began := int64(math.MaxInt64)
	if !before.IsZero() {
		began = before.UnixMicro()
	}
	return get(ctx, l, func() (runs []driver.Run) {
		all := slices.Clone(l.runs[name])
		slices.SortFunc(all, func(a, b *run) int { return byTime(b, a) })
		for _, r := range all {
			if r.began < began && len(runs) < limit {
				runs = append(runs, l.runAsSeen(r))
			}
		}
		return runs
	})
}
