package runtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/operate"
)

// work lets a statement take effect, or delivers an answer.
func (w *world) work() bool {
	can := func(s *statement) bool { return !s.done && (s.sent || !s.m.mute()) || s.done && !s.m.mute() }
	var s *statement
	any := false
	if w.rng.IntN(2) == 0 { // it is over sooner than a cohort
		s,
			any = one(w, some(w.statements, func(s *statement) bool {
			return can(s) && (s.kind == "describe" || s.kind == "break")
		}))
	}
	if !any {
		s, any = one(w, some(w.statements, can))
	}
	if !any {
		return false
	}
	switch {
	case s.left && w.rng.IntN(3) == 0:
		w.note("%s: is never run", s)
		w.drop(s)
	case s.left:
		s.run()
		w.drop(s)
		w.note("%s: runs late: %s", s, said{w, s})
	case s.done:
		w.note("%s: is answered", s)
		w.drop(s)
		s.answer()
	default:
		s.run()
		w.note("%s: runs: %s", s, said{w, s})
		if !s.m.mute() && w.rng.IntN(3) > 0 {
			w.drop(s)
			s.answer()
		}
	}
	return true
}

// tell connects a listener, or delivers a hint.
func (w *world) tell() bool {
	l, any := one(w, some(w.listeners, func(l *listener) bool {
		return !l.m.mute() && (!l.connected || len(l.hints) > 0)
	}))
	if !any {
		return false
	}
	if !l.connected {
		l.connected = true
		w.note("%s: listens", l.m)
		l.heard <- func() error { l.ready(); return nil }
		return true
	}
	i := w.rng.IntN(len(l.hints))
	h := l.hints[i]
	if w.rng.IntN(100) >= w.faults {
		l.hints = slices.Delete(l.hints, i, i+1)
	}
	w.note("%s: hears of %s %d", l.m, w.journal.number(h.Attempt), h.Grant.Token)
	l.heard <- func() error { l.wake(h); return nil }
	return true
}

// pass lets time pass.
func (w *world) pass() bool {
	d := []time.Duration{time.Millisecond, 4 * time.Millisecond, 21 * time.Millisecond, 60 * time.Millisecond,
		150 * time.Millisecond}[w.rng.IntN(5)]
	if w.haste && w.rng.IntN(20) > 0 {
		d = min(d, time.Duration(1+w.rng.IntN(4))*time.Millisecond)
	}
	mute := some(w.machines, (*machine).mute)
	if len(mute) > 0 && w.rng.IntN(2) == 0 {
		d = 300 * time.Millisecond
	}
	w.note("%v pass", d)
	time.Sleep(d)
	for _, m := range mute {
		if time.Now().After(m.until) {
			w.resume(m)
		}
	}
	return true
}

func (w *world) resume(m *machine) {
	w.note("%s goes on", m)
	if m.mute() {
		m.disturb(time.Now())
	}
	m.stopped, m.cut = false, false
	m.frozen.Store(0)
}

// fault is something that goes wrong.
func (w *world) fault() bool {
	switch w.rng.IntN(7) {
	case 0: // stop, or cut off
		m := w.machines[w.rng.IntN(len(w.machines))]
		if m.mute() || m.closed || m.closing {
			return false
		}
		long := time.Duration(w.rng.Int64N(int64(ttl / 4)))
		if w.rng.IntN(2) == 0 {
			long = ttl + time.Duration(w.rng.Int64N(int64(ttl/2)))
		}
		m.until = time.Now().Add(long)
		m.disturb(m.until)
		if w.rng.IntN(3) > 0 {
			m.frozen.Store(int64(m.clock()))
			m.stopped = true
			w.note("%s stops for %v", m, long)
		} else {
			m.cut = true
			w.note("%s is cut off for %v", m, long)
		}
	case 1, 2: // an answer is lost
		s, any := one(w, some(w.statements, func(s *statement) bool { return !s.left && !s.m.mute() }))
		if !any {
			return false
		}
		w.note("%s: the answer is lost", s)
		s.left, s.m.failed = true, s.m.failed || s.m.closing
		s.lose()
	case 3: // a statement is refused
		s, any := one(w, some(w.statements, func(s *statement) bool {
			return !s.left && !s.done && !s.about.reads && !s.m.mute()
		}))
		if !any {
			return false
		}
		s.m.failed = s.m.failed || s.m.closing
		s.refuse([]error{driver.ErrRetry, driver.ErrBusy}[w.rng.IntN(2)])
		w.note("%s: is refused: %s", s, said{w, s})
	case 4: // a hint is lost, or all
		l, any := one(w, some(w.listeners, func(l *listener) bool { return len(l.hints) > 0 && !l.m.mute() }))
		if !any {
			return false
		}
		if w.rng.IntN(2) == 0 {
			w.note("%s: a hint is lost", l.m)
			i := w.rng.IntN(len(l.hints))
			l.hints = slices.Delete(l.hints, i, i+1)
			break
		}
		w.note("%s: the listener is lost", l.m)
		l.over = true
		l.heard <- func() error { return errCut }
	case 5, 6: // somebody gives up
		a, any := one(w, some(w.actors, func(a *actor) bool { return a.cancel != nil && !a.cancelled && !a.m.stopped }))
		if !any {
			return false
		}
		w.note("%s: its context ends", a)
		a.cancelled = true
		a.cancel()
	}
	return true
}

// interfere has a machine ask for the first name, break it, or close in the middle of everything.
func (w *world) interfere() bool {
	m := w.machines[w.rng.IntN(len(w.machines))]
	switch {
	case m.mute() || m.closing:
		return false
	case !w.crowded() && w.rng.IntN(4) > 0:
		return false // it is cohorts that one wants to see broken
	case w.rng.IntN(30) == 0 && w.steps > 100:
		return w.close(m)
	}
	if w.rng.IntN(4) == 0 {
		reason := fmt.Sprint("step ", w.steps)
		w.note("%s: asks its holder for %s", m, names[0])
		go func() {
			err := operate.Ask(context.Background(), m.client, names[0], reason)
			w.finish(func() { w.note("%s: has asked: %v", m, err) })
		}()
		return true
	}
	reason, tokens := fmt.Sprint("step ", w.steps), w.someTokens()
	w.journal.aims[reason] = tokens
	w.note("%s: breaks %s %d", m, names[0], tokens)
	go func() {
		n, err := operate.Break(context.Background(), m.client, names[0], reason, tokens)
		w.finish(func() { w.note("%s: has broken %d %v", m, n, err) })
	}()
	return true
}

// crowded reports whether a cohort has the first name.
func (w *world) crowded() bool {
	row, _ := w.tables.Locks.Row(names[0])
	return row.Session != "" && row.First < row.Last
}

// someTokens are what Break is called with: none, or one that the row had, has or will have.
func (w *world) someTokens() []int64 {
	row, there := w.tables.Locks.Row(names[0])
	if !there || w.rng.IntN(2) == 0 {
		return nil
	}
	return []int64{max(row.First-3, 1) + w.rng.Int64N(row.Last-row.First+7)}
}

// close closes a machine in the middle of everything.
func (w *world) close(m *machine) bool {
	for _, a := range w.actors {
		if a.m == m && (a.working || a.tx != nil) {
			return false // Close and a conversion wait for one mutex, which the bubble does not see
		}
	}
	w.note("%s: closes", m)
	m.closing = true
	go func() {
		err := m.client.Close(context.Background())
		w.finish(func() {
			m.closed, m.failed = true, m.failed || err != nil
			w.note("%s: is closed: %v", m, err)
		})
	}()
	return true
}
