package dblocktest

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (l *line) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) (next []driver.Handoff, err error) {
	err = l.do(ctx, func() error {
		next, err = l.change(how.Name, how.Make, transition)
		return err
	})
	return next, err
}

func (l *line) Take(ctx context.Context, r driver.Request) (grant driver.Grant, taken bool, err error) {
	_, err = l.Change(ctx, driver.How{Name: r.Name, Make: true}, func(n *protocol.Name) error {
		grant, taken = protocol.Take(n, r)
		return nil
	})
	return grant, taken, err
}

func (l *line) Join(ctx context.Context, r driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	_, err = l.Change(ctx, driver.How{Name: r.Name, Make: true}, func(n *protocol.Name) (err error) {
		grant, outcome, err = protocol.Join(n, r)
		return err
	})
	return grant, outcome, err
}

func (l *line) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	err = l.do(ctx, func() error {
		next, left, err = l.remove(r)
		return err
	})
	return next, left, err
}

func (l *line) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool, err error) {
	grants, released = make([]driver.Grant, len(takes)), make([]bool, len(releases))
	err = l.do(ctx, func() error {
		for i, r := range takes {
			_, _ = l.change(r.Name, true, func(n *protocol.Name) error {
				grants[i], _ = protocol.Take(n, r)
				return nil
			})
		}
		for i, h := range releases {
			if row, _ := l.names.Row(h.Name); row.Waiters == 0 {
				_, released[i], _ = l.remove(protocol.Release(h, false, false))
			}
		}
		return nil
	})
	return grants, released, err
}

func (l *line) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	return get(ctx, l, func() (states []driver.State) {
		for _, name := range names {
			if _, there := l.names.Row(name); there {
				states = append(states, l.look(name, session))
			}
		}
		return states
	})
}

// look is a name as a session sees it; of no session ("") no place is its own.
func (d *database) look(name, session string) driver.State {
	row, _ := d.names.Row(name)
	s := driver.State{Name: name, Waiters: row.Waiters, Used: row.Units, Rest: d.rest(row)}
	if row.Waiters > 0 || row.Units > 0 {
		s.Capacity = row.Capacity
	}
	for _, h := range d.holders(name) {
		shown := d.shown(h)
		shown.Grant.Contended = row.Waiters > 0
		if s.Holder.Session == "" || shown.Left < s.Holder.Left {
			s.Holder = shown
		}
		if h.Units > 0 {
			s.Sharing++
		}
		if h.Session == session {
			s.Granted = append(s.Granted, driver.OwnGrant{Attempt: h.Attempt, Grant: shown.Grant})
		}
	}
	places := d.names.Places(name)
	for _, p := range places {
		if session != "" && p.Session == session {
			s.Queued = append(s.Queued, p.Attempt)
		}
	}
	if len(places) > 0 && row.Session == "" {
		head := places[0]
		s.Ready = s.Rest <= 0 && row.Fits(head.Units, head.Of)
		if s.Sharing > 0 {
			s.Head = d.waiter(head)
		}
	}
	return s
}

// rest is what is left of the cool-down of a name.
func (d *database) rest(row protocol.Row) time.Duration { return max(0, duration(row.Rests-d.now())) }
