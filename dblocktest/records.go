package dblocktest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
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

func (l *line) Announce(ctx context.Context, h driver.Held, e driver.Event) error {
	return l.do(ctx, func() error {
		if _, _, err := l.held(h); err != nil {
			return err
		}
		l.record(e)
		l.stir(h.Name)
		return nil
	})
}

func (l *line) Events(ctx context.Context, f driver.EventFilter, limit int) ([]driver.Event, error) {
	return ask(ctx, l, func() (events []driver.Event, err error) {
		for _, e := range l.events {
			if e.ID > f.After && e.ID < f.Below() && (f.Name == "" || e.Name == f.Name) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) {
				events = append(events, e)
			}
		}
		if f.Newest {
			slices.Reverse(events)
		}
		return events[:min(limit, len(events))], nil
	})
}

func (l *line) EventsSince(ctx context.Context, since time.Time) (int64, error) {
	return ask(ctx, l, func() (int64, error) {
		i := slices.IndexFunc(l.events, func(e driver.Event) bool { return !e.At.Before(since) })
		if i < 0 {
			return math.MaxInt64, nil
		}
		return l.events[i].ID - 1, nil
	})
}

func (l *line) Ask(ctx context.Context, name, reason string, e driver.Event) (int, error) {
	return ask(ctx, l, func() (holders int, err error) {
		n := l.locks[name]
		if n == nil {
			return 0, nil
		}
		for _, h := range n.holders() {
			h.asked = reason
			l.tell(h.session, driver.Hint{Attempt: h.attempt})
			holders++
		}
		if holders > 0 {
			l.record(e)
		}
		return holders, nil
	})
}

func (l *line) EndRest(ctx context.Context, name string, token int64, e driver.Event) (bool, error) {
	return ask(ctx, l, func() (bool, error) {
		n := l.locks[name]
		if n == nil || n.rests <= l.now() || token != 0 && token != n.last {
			return false, nil
		}
		n.rests = 0
		l.record(e)
		return true, nil
	})
}
