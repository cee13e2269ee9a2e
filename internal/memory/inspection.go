package memory

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (l *Link) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return get(ctx, l, func() (names []string) {
		for _, name := range l.Locks.All() {
			if name > f.After && strings.HasPrefix(name, f.Prefix) && len(names) < limit && l.selects(f, name) {
				names = append(names, name)
			}
		}
		return names
	})
}

// selects reports whether a filter selects a name. One holder must match all conditions on holders.
func (d *DB) selects(f driver.Filter, name string) bool {
	row, _ := d.Locks.Row(name)
	holders := d.Holders(name)
	switch {
	case !f.Idle && len(holders) == 0 && row.Waiters == 0, f.Contended && !d.awaited(name):
		return false
	}
	return f.Host == "" && f.Older <= 0 || slices.ContainsFunc(holders, func(h Holder) bool {
		return (f.Host == "" || h.Host == f.Host) && h.Since <= d.Micros()-micros(f.Older)
	})
}

// awaited reports whether anybody waits for a name who is no candidate.
func (d *DB) awaited(name string) bool {
	return slices.ContainsFunc(d.Locks.Places(name), func(p protocol.Place) bool {
		return !protocol.Candidate(p.Attempt)
	})
}

func (l *Link) Why(ctx context.Context, name string, limit int) ([]string, error) {
	return get(ctx, l, func() (names []string) {
		if _, there := l.Locks.Row(name); there {
			names = append(names, name)
		}
		for i := 0; i < len(names) && len(names) < limit; i++ {
			for _, awaited := range l.Locks.All() {
				if !slices.Contains(names, awaited) && l.delays(awaited, names[i]) {
					names = append(names, awaited)
				}
			}
		}
		return names[:min(len(names), limit)]
	})
}

// delays reports whether a holder of a name waits for another.
func (d *DB) delays(awaited, name string) bool {
	return slices.ContainsFunc(d.Holders(name), func(h Holder) bool {
		return slices.ContainsFunc(d.Locks.Places(awaited), func(p protocol.Place) bool {
			return owner{p.Session, p.Host, p.Thread} == owner{h.Session, h.Host, h.Thread}
		})
	})
}

func (l *Link) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	return get(ctx, l, func() (details []driver.SessionDetail) {
		for _, id := range slices.Sorted(maps.Keys(l.SessionRows)) {
			s := l.SessionRows[id]
			if id <= after || f.Host != "" && s.Host != f.Host || f.App != "" && s.App != f.App || !f.Dead &&
				!l.alive(id) || len(details) == limit {
				continue
			}
			detail := inspection.Session{ID: id, Host: s.Host, Pid: int64(s.PID), App: s.App, StartedAt: s.Started,
				NowUs: l.Micros(), ExpiresAt: l.expiry(id), Buried: s.Buried}
			for _, c := range l.ClaimsOf(id) {
				if c.Token > 0 {
					detail.Held++
				}
			}
			for _, name := range l.Locks.All() {
				for _, p := range l.Locks.Places(name) {
					if p.Session == id {
						detail.Waiting += int64(max(p.Members, 1))
					}
				}
			}
			details = append(details, detail.Detail())
		}
		return details
	})
}

// Watch does nothing for a session that has ended.
func (l *Link) Watch(ctx context.Context, session, name, watch string) error {
	return l.do(ctx, func() error {
		if l.WatchRows[name] == nil {
			l.WatchRows[name] = map[string]string{}
		}
		if !l.dead(session) {
			l.WatchRows[name][watch] = session
		}
		return nil
	})
}

func (l *Link) Unwatch(ctx context.Context, name, watch string) error {
	return l.do(ctx, func() error {
		delete(l.WatchRows[name], watch)
		return nil
	})
}

// notifyWatchers notifies the sessions that watch a name.
func (d *DB) notifyWatchers(name string) {
	watches := d.WatchRows[name]
	for _, watch := range slices.Sorted(maps.Keys(watches)) {
		d.tell(watches[watch], protocol.Hint{Attempt: watch})
	}
}
