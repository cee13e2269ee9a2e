package dblocktest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (l *line) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return get(ctx, l, func() (names []string) {
		for _, name := range l.names.All() {
			if name > f.After && strings.HasPrefix(name, f.Prefix) && len(names) < limit && l.selects(f, name) {
				names = append(names, name)
			}
		}
		return names
	})
}

// selects reports whether a filter selects a name. One holder must match all conditions on holders.
func (d *database) selects(f driver.Filter, name string) bool {
	row, _ := d.names.Row(name)
	holders := d.holders(name)
	switch {
	case !f.Idle && len(holders) == 0 && row.Waiters == 0, f.Contended && row.Waiters == 0:
		return false
	}
	return f.Host == "" && f.Older <= 0 || slices.ContainsFunc(holders, func(h holder) bool {
		return (f.Host == "" || h.Host == f.Host) && h.Since <= d.now()-micros(f.Older)
	})
}

func (l *line) Why(ctx context.Context, name string, limit int) ([]string, error) {
	return get(ctx, l, func() (names []string) {
		if _, there := l.names.Row(name); there {
			names = append(names, name)
		}
		for i := 0; i < len(names) && len(names) < limit; i++ {
			for _, awaited := range l.names.All() {
				if !slices.Contains(names, awaited) && l.delays(awaited, names[i]) {
					names = append(names, awaited)
				}
			}
		}
		return names[:min(len(names), limit)]
	})
}

// delays reports whether a holder of a name waits for another.
func (d *database) delays(awaited, name string) bool {
	return slices.ContainsFunc(d.holders(name), func(h holder) bool {
		return slices.ContainsFunc(d.names.Places(awaited), func(p protocol.Place) bool {
			return owner{p.Session, p.Host, p.Thread} == owner{h.Session, h.Host, h.Thread}
		})
	})
}

func (l *line) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	return get(ctx, l, func() (details []driver.SessionDetail) {
		for _, id := range slices.Sorted(maps.Keys(l.sessions)) {
			s := l.sessions[id]
			if id <= after || f.Host != "" && s.Host != f.Host || f.App != "" && s.App != f.App || !f.Dead &&
				!l.alive(id) || len(details) == limit {
				continue
			}
			detail := inspection.Session{ID: id, Host: s.Host, Pid: int64(s.PID), App: s.App, StartedAt: s.started,
				NowUs: l.now(), ExpiresAt: l.expiry(id)}
			for _, c := range l.claims(id) {
				if c.Token > 0 {
					detail.Held++
				} else {
					detail.Waiting++
				}
			}
			details = append(details, detail.Detail())
		}
		return details
	})
}

// Watch does nothing for a session that has ended.
func (l *line) Watch(ctx context.Context, session, name, watch string) error {
	return l.do(ctx, func() error {
		if l.watchers[name] == nil {
			l.watchers[name] = map[string]string{}
		}
		if !l.dead(session) {
			l.watchers[name][watch] = session
		}
		return nil
	})
}

func (l *line) Unwatch(ctx context.Context, name, watch string) error {
	return l.do(ctx, func() error {
		delete(l.watchers[name], watch)
		return nil
	})
}

// stir notifies the sessions that watch a name.
func (d *database) stir(name string) {
	watches := d.watchers[name]
	for _, watch := range slices.Sorted(maps.Keys(watches)) {
		d.tell(watches[watch], driver.Hint{Attempt: watch})
	}
}
