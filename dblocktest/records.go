package dblocktest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

func (l *line) Record(ctx context.Context, events []driver.Event) error {
	return l.do(ctx, func() error {
		for _, e := range events {
			l.record(e)
		}
		return nil
	})
}

func (d *database) record(e driver.Event) {
	d.lastEvent++
	e.ID, e.At = d.lastEvent, timeOf(d.now())
	d.events = append(d.events, e)
}

func (l *line) Events(ctx context.Context, f driver.EventFilter, limit int) ([]driver.Event, error) {
	return get(ctx, l, func() (events []driver.Event) {
		for _, e := range l.events {
			if e.ID > f.After && e.ID < f.Below() && (f.Name == "" || e.Name == f.Name) &&
				(len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) {
				events = append(events, e)
			}
		}
		if f.Newest {
			slices.Reverse(events)
		}
		return events[:min(limit, len(events))]
	})
}

func (l *line) EventsSince(ctx context.Context, since time.Time) (int64, error) {
	return get(ctx, l, func() int64 {
		i := slices.IndexFunc(l.events, func(e driver.Event) bool { return !e.At.Before(since) })
		if i < 0 {
			return math.MaxInt64
		}
		return l.events[i].ID - 1
	})
}

// incarnation is the period for which the database remembers its locks.
type incarnation struct{ since, floor int64 }

func (l *line) Incarnation(ctx context.Context, renew bool, floor int64) (driver.Incarnation, error) {
	return get(ctx, l, func() driver.Incarnation {
		fresh := l.incarnation == nil
		if fresh || renew {
			l.incarnation = &incarnation{l.now(), max(floor, 0)}
		}
		i := driver.Incarnation{Age: duration(l.now() - l.incarnation.since), Floor: l.incarnation.floor, Fresh: fresh}
		if floor < 0 {
			i.Floor = max(i.Floor, l.now())
			for _, name := range l.names.All() {
				row, _ := l.names.Row(name)
				i.Floor = max(i.Floor, row.Token)
			}
		}
		return i
	})
}
