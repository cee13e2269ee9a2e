package dblocktest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// rest is what is left of the cool-down of a name.
func (d *database) rest(n *name) time.Duration { return max(0, microseconds(n.rests-d.now())) }

func (l *line) Describe(ctx context.Context, names []string, waiters int) ([]driver.Detail, error) {
	return ask(ctx, l, func() (details []driver.Detail, err error) {
		for _, is := range slices.Sorted(slices.Values(names)) {
			if n := l.locks[is]; n != nil {
				details = append(details, l.describe(n, waiters))
			}
		}
		return details, nil
	})
}

// describe shows all about a name, with its first waiters. The members of a run do not wait.
func (d *database) describe(n *name, waiters int) driver.Detail {
	detail := driver.Detail{Name: n.is, Token: n.token, Rest: d.rest(n)}
	if n.used() > 0 || len(n.queue) > 0 {
		detail.Capacity = n.capacity
	}
	for _, p := range n.queue {
		if p.token != 0 {
			continue
		}
		if detail.Queued++; detail.Queued <= waiters {
			detail.Waiters = append(detail.Waiters, d.party(d.waiter(p), p.Metadata))
		}
	}
	for _, h := range n.holders() {
		p := d.party(d.holder(h), h.metadata)
		p.Holds, p.Asked, p.Grant.Contended = h.holds, h.asked, detail.Queued > 0
		detail.Holders = append(detail.Holders, p)
	}
	return detail
}

func (d *database) party(h driver.Holder, metadata string) driver.Party {
	p := driver.Party{Holder: h, Metadata: metadata}
	if s := d.sessions[h.Session]; s != nil {
		p.App, p.PID = s.App, s.PID
	}
	return p
}

func (l *line) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return ask(ctx, l, func() (names []string, err error) {
		for _, is := range l.sorted() {
			if is > f.After && strings.HasPrefix(is, f.Prefix) && len(names) < limit && l.selects(f, l.locks[is]) {
				names = append(names, is)
			}
		}
		return names, nil
	})
}

func (l *line) Why(ctx context.Context, is string, limit int) ([]string, error) {
	return ask(ctx, l, func() (names []string, err error) {
		if l.locks[is] != nil {
			names = append(names, is)
		}
		for i := 0; i < len(names) && len(names) < limit; i++ {
			for _, awaited := range l.sorted() {
				if !slices.Contains(names, awaited) && l.delays(l.locks[awaited], l.locks[names[i]]) {
					names = append(names, awaited)
				}
			}
		}
		return names[:min(len(names), limit)], nil
	})
}

// delays reports whether a holder of a name waits for another.
func (d *database) delays(awaited, n *name) bool {
	return slices.ContainsFunc(n.holders(), func(h *hold) bool {
		return slices.ContainsFunc(awaited.queue, func(p *place) bool {
			return p.token == 0 && p.Session == h.session && p.Host == h.host && p.Thread == h.thread
		})
	})
}

// selects reports whether a filter means a name. What it asks of a holder must be true of one and
// the same.
func (d *database) selects(f driver.Filter, n *name) bool {
	if !f.Idle && len(n.holders()) == 0 && len(n.queue) == 0 {
		return false
	}
	if f.Contended && !slices.ContainsFunc(n.queue, func(p *place) bool { return p.token == 0 }) {
		return false
	}
	return f.Host == "" && f.Older <= 0 || slices.ContainsFunc(n.holders(), func(h *hold) bool {
		return (f.Host == "" || h.host == f.Host) && h.since <= d.now()-micros(f.Older)
	})
}

func (l *line) Sessions(ctx context.Context, f driver.SessionFilter, after string, limit int) ([]driver.SessionDetail, error) {
	return ask(ctx, l, func() (details []driver.SessionDetail, err error) {
		for _, id := range slices.Sorted(maps.Keys(l.sessions)) {
			s := l.sessions[id]
			if id <= after || f.Host != "" && s.Host != f.Host || f.App != "" && s.App != f.App || !f.Dead && !l.alive(id) || len(details) == limit {
				continue
			}
			detail := driver.SessionDetail{ID: id, Host: s.Host, App: s.App, PID: s.PID, Started: timeOf(s.started), Dead: s.dead || s.expires == 0}
			if !detail.Dead {
				detail.Left = microseconds(s.expires - l.now())
			}
			for _, n := range l.locks {
				for _, h := range n.holders() {
					if h.session == id {
						detail.Held++
					}
				}
				for _, p := range n.queue {
					if p.Session == id && p.token == 0 {
						detail.Waiting++
					}
				}
			}
			details = append(details, detail)
		}
		return details, nil
	})
}

// Watch does nothing for a session that has ended.
func (l *line) Watch(ctx context.Context, session, name, watch string) error {
	return l.do(ctx, func() error {
		if l.dead(session) {
			return nil
		}
		if l.watchers[name] == nil {
			l.watchers[name] = map[string]string{}
		}
		l.watchers[name][watch] = session
		return nil
	})
}

func (l *line) Unwatch(ctx context.Context, name, watch string) error {
	return l.do(ctx, func() error {
		delete(l.watchers[name], watch)
		return nil
	})
}

func (l *line) Stir(ctx context.Context, name string) error {
	return l.do(ctx, func() error {
		l.stir(name)
		return nil
	})
}

// stir tells the sessions that watch a name.
func (d *database) stir(name string) {
	watches := d.watchers[name]
	for _, watch := range slices.Sorted(maps.Keys(watches)) {
		d.tell(watches[watch], driver.Hint{Attempt: watch})
	}
}
