package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
)

func (l *Link) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	return get(ctx, l, func() []driver.Claim {
		claims := l.ClaimsOf(session)
		return claims[:min(len(claims), limit)]
	})
}

func (l *Link) Orphans(ctx context.Context, limit int) ([]driver.Claim, error) {
	return get(ctx, l, func() (orphans []driver.Claim) {
		orphans = l.claims(l.dead)
		return orphans[:min(len(orphans), limit)]
	})
}

func (l *Link) Overdue(ctx context.Context, limit int) ([]driver.State, error) {
	return get(ctx, l, func() (states []driver.State) {
		for _, name := range l.Locks.All() {
			for _, h := range l.Holders(name) {
				if h.Ends != 0 && h.Ends <= l.Micros() && len(states) < limit {
					states = append(states, driver.State{Name: name, Holder: l.shown(h)})
				}
			}
		}
		return states
	})
}

func (l *Link) Miscounted(ctx context.Context, _, _ string, limit int) ([]string, error) {
	return get(ctx, l, func() (names []string) {
		for _, name := range l.Locks.All() {
			if _, _, err := l.Locks.Apply(counted{protocol.Recount{Name: name}}); err != nil && len(names) < limit {
				names = append(names, name)
			}
		}
		return names
	})
}

// counted is a recount that changes nothing: it fails where the row is wrong.
type counted struct{ protocol.Recount }

func (c counted) Apply(n *protocol.Name) (protocol.Result, error) {
	result, err := c.Recount.Apply(n)
	if result.Done() {
		err = protocol.ErrRetry
	}
	return result, err
}

// Purge keeps a name whose token is ahead of the clock, since the tokens of a new row would be
// lower.
func (l *Link) Purge(
	ctx context.Context, idle time.Duration, after string, limit int,
) (deleted int, next string, err error) {
	err = l.do(ctx, func() error {
		now, above := l.Micros(), l.Locks.All()
		above = slices.DeleteFunc(above, func(name string) bool { return name <= after })
		if len(above) > limit {
			above = above[:limit]
			next = above[limit-1]
		}
		for _, name := range above {
			row, _ := l.Locks.Row(name)
			used := row.Session != "" || row.Units > 0 || row.Waiters > 0 || row.Rests >= now
			if !used && row.Since < now-micros(idle) && row.Token < now {
				l.Locks.Delete(name)
				deleted++
			}
		}
		return nil
	})
	return deleted, next, err
}

func (l *Link) Forget(ctx context.Context, idle time.Duration, limit int) (int, error) {
	return get(ctx, l, func() (forgotten int) {
		for _, watches := range l.WatchRows {
			maps.DeleteFunc(watches, func(_, session string) bool { return l.dead(session) })
		}
		for id, s := range l.SessionRows {
			if forgotten < limit && s.Dead && s.Started < l.Micros()-micros(idle) && len(l.ClaimsOf(id)) == 0 {
				delete(l.SessionRows, id)
				forgotten++
			}
		}
		return forgotten
	})
}

// DropGuards does nothing: there are no transactions.
func (l *Link) DropGuards(context.Context, int) (int, error) { return 0, nil }

func (l *Link) PurgeRecords(ctx context.Context, keep time.Duration, limit int) (int, error) {
	return get(ctx, l, func() int {
		before, events, runs := l.Micros()-micros(keep), 0, 0
		l.EventRows = slices.DeleteFunc(l.EventRows, func(e protocol.Event) bool {
			row, _ := l.Locks.Row(e.Name)
			present := row.Session != "" && row.First <= e.Token && e.Token <= row.Last
			gone := events < limit && e.At.UnixMicro() < before && !present
			if gone {
				events++
			}
			return gone
		})
		for name, all := range l.RunRows {
			l.RunRows[name] = slices.DeleteFunc(all, func(r *slots.Row) bool {
				over := r.EndedAt != 0 && r.EndedAt < before || r.EndedAt == 0 && !l.alive(r.SessionID)
				latest := r.SlotEnds == r.Slot && !slices.ContainsFunc(all,
					func(other *slots.Row) bool { return other.Slot > r.Slot })
				// Without its row a slot would be run again.
				gone := runs < limit && r.SlotEnds < before && over && !latest
				if gone {
					runs++
				}
				return gone
			})
		}
		return events + runs
	})
}

// Reap does the work of the reapers of all clients up to now: it takes names from expired holders,
// and hands over free names. MUST be called with mu locked.
func (d *DB) Reap() {
	for _, name := range d.Locks.All() {
		for _, h := range d.Holders(name) {
			_, _ = d.Apply(protocol.TakeOver("", name, d.shown(h))) // in memory nothing is busy
		}
		_, _ = d.Apply(protocol.TakeOver("", name, protocol.Holder{}))
	}
}
