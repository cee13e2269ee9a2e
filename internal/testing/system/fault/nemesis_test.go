//go:build unix

package fault

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// fault does something to one actor, and undoes it. One at a time, so that a loss has one
// explanation.
func (h *history) fault() {
	h.Helper()
	i := h.random.IntN(slots)
	p, proxy := h.running[i], h.proxies[i]
	brief := ttl/20 + time.Duration(h.random.Int64N(int64(ttl/4)))
	long := ttl * 6 / 5
	during := func(what string, d time.Duration, begin, end func()) {
		f := fault{victim: p, what: what}
		if d > ttl/2 { // what is worth it only where a lock is held, that somebody waits for
			op := p.lock(h.names[h.random.IntN(len(h.names))])
			if p.await(op, evHeld, evRefused).What == evHeld {
				defer p.unlock(op)
			}
		}
		if what[0] != 'k' && what[0] != 's' { // kills and stops are counted where they are done
			h.tried("network faults", 1)
		}
		f.from = session.Boottime()
		begin()
		pass(d)
		end()
		h.healed = session.Boottime()
		f.to = h.healed
		h.faults = append(h.faults, f)
	}
	kind := h.random.IntN(10)
	if proxy == nil && kind > 2 {
		kind %= 3 // SQLite: there are processes, and no connections
	}
	switch kind {
	case 0:
		during("killed", 0, func() { p.kill() }, func() { h.start(i) })
	case 1:
		during("stopped briefly", brief, func() { p.stop() }, func() { p.resume() })
	case 2:
		during("stopped for long", long, func() { p.stop() }, func() { p.resume() })
	case 3, 4:
		during("cut off briefly", brief, proxy.Cut, proxy.Heal)
	case 5:
		during("cut off for long", long, proxy.Cut, proxy.Heal)
	case 6:
		during("frozen briefly", brief, proxy.Freeze, proxy.Heal)
	case 7:
		during("frozen for long", long, proxy.Freeze, proxy.Heal)
	case 8:
		during("replies dropped", brief, proxy.DropReplies, proxy.Heal)
	case 9:
		for range 3 {
			during("a connection terminated", 0, h.terminate, func() {})
		}
	}
}

// terminate ends any connection to the database but this test's own.
func (w *world) terminate() {
	w.Helper()
	if w.db.Kind == dbtest.KindPostgres {
		w.count("SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE datname = " +
			"current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim")
		return
	}
	id, there := w.number("SELECT id FROM %s WHERE db = database() AND id <> connection_id() ORDER BY rand() LIMIT 1",
		w.db.Processes())
	if there {
		_, _ = w.sql.ExecContext(w.Context(), fmt.Sprintf("KILL %d", id)) // an error is that it has gone by itself
	}
}

// halt stops a process while it does not write to an SQLite file: a stopped writer would stop all
// processes.
func (w *world) halt(p *process) time.Duration {
	w.Helper()
	if w.db.Kind != dbtest.KindSQLite {
		return p.stop()
	}
	w.exec("BEGIN IMMEDIATE")
	defer w.exec("ROLLBACK")
	return p.stop()
}
