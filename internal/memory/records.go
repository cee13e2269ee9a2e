package memory

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (l *Link) Record(ctx context.Context, events []protocol.Event) error {
	return l.do(ctx, func() error {
		for _, e := range events {
			l.record(e)
		}
		return nil
	})
}

func (d *DB) record(e protocol.Event) {
	d.lastEvent++
	e.ID, e.At = d.lastEvent, timeOf(d.Micros())
	d.EventRows = append(d.EventRows, e)
}

func (l *Link) Events(ctx context.Context, f driver.EventFilter, limit int) ([]protocol.Event, error) {
	return get(ctx, l, func() (events []protocol.Event) {
		for _, e := range l.EventRows {
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

func (l *Link) EventsSince(ctx context.Context, since time.Time) (int64, error) {
	return get(ctx, l, func() int64 {
		i := slices.IndexFunc(l.EventRows, func(e protocol.Event) bool { return !e.At.Before(since) })
		if i < 0 {
			return math.MaxInt64
		}
		return l.EventRows[i].ID - 1
	})
}

// incarnation is the period for which the database remembers its locks.
type incarnation struct{ since, floor int64 }

func (l *Link) Incarnation(ctx context.Context, renew bool, floor int64) (driver.Incarnation, error) {
	return get(ctx, l, func() driver.Incarnation {
		fresh := l.incarnation == nil
		if fresh || renew {
			l.incarnation = &incarnation{l.Micros(), max(floor, 0)}
		}
		age := duration(l.Micros() - l.incarnation.since)
		i := driver.Incarnation{Age: age, Floor: l.incarnation.floor, Fresh: fresh}
		if floor < 0 {
			i.Floor = max(i.Floor, l.Micros())
			for _, name := range l.Locks.All() {
				row, _ := l.Locks.Row(name)
				i.Floor = max(i.Floor, row.Token)
			}
		}
		return i
	})
}
