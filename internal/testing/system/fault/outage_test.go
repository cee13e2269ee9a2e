//go:build unix

package fault

import (
	"time"
)

// outage takes the database away, and gives it back.
type outage struct{ begin, end func() }

// hogging is SQLite's outage: a process in a write transaction that does not end.
func (w *world) hogging() outage {
	w.Helper()
	w.resource("hogged")
	hog := w.actor("hog")
	var op int
	return outage{
		func() {
			op = hog.send(command{Verb: "hog"})
			if e := hog.await(op, evHogging); e.Err != "" {
				w.Fatal(e.Err)
			}
		},
		func() { hog.await(hog.send(command{Verb: "unhog", Hold: op}), evDone) },
	}
}

func shortOutage(w *world, o outage) {
	const name = "short"
	holder, waiter := w.actor("holder"), w.actor("waiter")
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	w.tried("outages", 1)
	o.begin()
	pass(ttl / 4) // longer than a heartbeat may take, and what is left is enough for a connect
	o.end()
	pass(ttl) // a lease that was not renewed since would end now
	holder.mustUnlock(first.Op)
	w.rises(first, waiter.held(next))
	waiter.mustUnlock(next)
}

func longOutage(w *world, o outage) {
	const name = "long"
	holder, waiter := w.actor("holder"), w.actor("waiter")
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	w.tried("outages", 1)
	o.begin()
	pass(2 * ttl)
	o.end()
	second, lost := waiter.held(next), holder.await(first.Op, evLost)
	w.succeeded(first, lost, second)
	if e := holder.unlock(first.Op); !e.is(kindLost) {
		w.Errorf("unlock of a lost lock: %q", e.Err)
	}
	waiter.mustUnlock(next)
	holder.exit()
	waiter.exit()
}

func serverKilled(w *world) { w.underLoad(2, w.restart) }

// restart kills the server and starts it again.
func (w *world) restart() {
	w.Helper()
	w.tried("server kills", 1)
	w.server.Kill()
	w.server.Start()
	eventually(w, "the test has a connection again", func() bool { return w.sql.PingContext(w.Context()) == nil })
}

// SQLite's server is every process that writes.
func killedInMidWrite(w *world) {
	w.underLoad(3, func() {
		hog := w.actor("hog")
		if e := hog.await(hog.send(command{Verb: "hog"}), evHogging); e.Err != "" {
			w.Fatal(e.Err)
		}
		pass(50 * time.Millisecond) // others wait for it meanwhile
		hog.kill()
	})
}

// underLoad lets something happen to three processes at work, and checks that they were exclusive
// throughout, went on afterwards, and left nothing.
func (w *world) underLoad(times int, happens func()) {
	w.Helper()
	names, shared := []string{"load a", "load b"}, []string{"read load", "permits load"}
	w.resource(append(names, shared...)...)
	actors := []*process{w.actor("x"), w.actor("y"), w.actor("z")}
	for _, p := range actors {
		p.work(modeLoad, 3, append(names, shared...)...)
	}
	for range times {
		w.goesOn(actors, 20)
		happens()
	}
	w.goesOn(actors, 20)
	w.rest(actors...)
	w.exclusive(actors...)
	w.exact(names, actors...)
	for _, name := range append(names, shared...) {
		eventually(w, name+" is free", func() bool { return !w.isHeld(name) }) // it may be a session's that is over
		w.queueIsClean(name)
	}
	for _, p := range actors {
		p.exit()
	}
}

// goesOn waits until each actor has got n more locks.
func (w *world) goesOn(actors []*process, n int) {
	w.Helper()
	for _, p := range actors {
		before := p.count(evHeld)
		eventually(w, p.label+" gets locks", func() bool { return p.count(evHeld) >= before+n })
	}
}

// rest pauses the crews, and waits until nobody waits for a lock any more.
func (w *world) rest(actors ...*process) {
	w.Helper()
	ops := make([]int, len(actors))
	for i, p := range actors {
		ops[i] = p.send(command{Verb: "pause"})
	}
	for i, p := range actors {
		p.await(ops[i], evIdle)
	}
}

func (w *world) queueIsClean(name string) {
	w.Helper()
	rows, counted := w.waiters(name), w.count("SELECT waiters FROM dblock_locks WHERE name = '%s'", name)
	if rows != 0 || counted != 0 {
		w.Errorf("%d places in the queue, the lock counts %d", rows, counted)
	}
	rows, counted = w.count("SELECT COALESCE(sum(units), 0) FROM dblock_shares WHERE name = '%s'", name),
		w.count("SELECT shared_units FROM dblock_locks WHERE name = '%s'", name)
	if rows != counted {
		w.Errorf("%d units are held, the lock counts %d", rows, counted)
	}
}

func (w *world) isHeld(name string) bool {
	return w.count("SELECT count(*) FROM dblock_locks WHERE name = '%s' AND session_id IS NOT NULL", name) == 1
}
