package dblocktest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

func (l *line) Orphans(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	return ask(ctx, l, func() ([]driver.Claim, error) {
		claims := l.claims(session)
		return claims[:min(len(claims), limit)], nil
	})
}

func (l *line) Overdue(ctx context.Context, limit int) ([]driver.State, error) {
	return ask(ctx, l, func() (states []driver.State, err error) {
		for _, is := range l.sorted() {
			for _, h := range l.locks[is].holders() {
				if l.over(h) && len(states) < limit {
					states = append(states, driver.State{Name: is, Holder: driver.Holder{
						Session: h.session, Units: h.units, Grant: driver.Grant{Token: h.token, Lease: -1},
					}})
				}
			}
		}
		return states, nil
	})
}

// purged is what Purge answers.
type purged struct {
	deleted int
	next    string
}

// Purge keeps a name whose token is ahead of the clock: a new one could not rise above it.
func (l *line) Purge(ctx context.Context, idle time.Duration, after string, limit int) (int, string, error) {
	p, err := ask(ctx, l, func() (p purged, err error) {
		now, seen := l.now(), 0
		for _, is := range l.sorted() {
			if is <= after {
				continue
			}
			if seen++; seen > limit {
				return p, nil
			}
			p.next = is
			n := l.locks[is]
			if len(n.holders()) == 0 && len(n.queue) == 0 && n.rests < now && n.since < now-micros(idle) && n.token < now {
				delete(l.locks, is)
				p.deleted++
			}
		}
		if seen < limit {
			p.next = ""
		}
		return p, nil
	})
	return p.deleted, p.next, err
}

func (l *line) Forget(ctx context.Context, idle time.Duration, limit int) (int, error) {
	return ask(ctx, l, func() (forgotten int, err error) {
		for _, watches := range l.watchers {
			maps.DeleteFunc(watches, func(_, session string) bool { return l.dead(session) })
		}
		for id, s := range l.sessions {
			if forgotten < limit && s.dead && s.started < l.now()-micros(idle) && len(l.claims(id)) == 0 {
				delete(l.sessions, id)
				forgotten++
			}
		}
		return forgotten, nil
	})
}

// DropGuards has none: there are no transactions.
func (l *line) DropGuards(context.Context, int) (int, error) { return 0, nil }

func (l *line) PurgeRecords(ctx context.Context, keep time.Duration, limit int) (int, error) {
	return ask(ctx, l, func() (int, error) {
		before, events, runs := l.now()-micros(keep), 0, 0
		l.events = slices.DeleteFunc(l.events, func(e driver.Event) bool {
			n := l.locks[e.Name]
			own := n != nil && n.whole != nil && e.Token >= n.first && e.Token <= n.last // of the present holder
			gone := events < limit && e.At.UnixMicro() < before && !own
			if gone {
				events++
			}
			return gone
		})
		for name, all := range l.runs {
			l.runs[name] = slices.DeleteFunc(all, func(r *run) bool {
				over := r.ended != 0 && r.ended < before || r.ended == 0 && !l.alive(r.Session)
				latest := r.moment() && !slices.ContainsFunc(all, func(other *run) bool { return other.Slot > r.Slot })
				gone := runs < limit && r.slotEnds < before && over && !latest // a slot without its row would be run again
				if gone {
					runs++
				}
				return gone
			})
		}
		return events + runs, nil
	})
}

// reap does what the reapers of all clients would have done by now: it takes names from holders
// that are over their time, and hands on what is free. MUST be called with mu locked.
func (d *database) reap() {
	for _, is := range d.sorted() {
		n := d.locks[is]
		for _, h := range slices.Clone(n.holders()) {
			if d.expire(h.session) || d.over(h) {
				d.vacate(driver.TakeOver("", is, d.holder(h)))
			}
		}
		if len(n.queue) > 0 {
			d.handOn(n, "")
		}
	}
}
