//go:build unix

package fault

// The place of the dead is passed over: its lease is over when the lock comes.
func killedWaiterOver(w *world) {
	const name = "over"
	// Without reapers its place is still there.
	holder, head, next := w.actor("holder", withoutReaper), w.actor("head", withoutReaper),
		w.actor("next", withoutReaper)
	first := holder.mustLock(name)
	w.queue(head, name)
	waiting := w.queue(next, name)
	head.kill()
	w.untilWaiterOver(name)
	holder.mustUnlock(first.Op)
	w.rises(first, next.held(waiting))
	w.queueIsClean(name)
	next.mustUnlock(waiting)
}

func killedWaiterFirst(w *world) {
	const name = "first"
	holder, head, next := w.actor("holder"), w.actor("head"), w.actor("next")
	first := holder.mustLock(name)
	w.queue(head, name)
	waiting := w.queue(next, name)
	head.kill()
	holder.mustUnlock(first.Op)
	if second := next.held(waiting); second.Token <= first.Token+1 {
		w.Errorf("token %d after %d and the dead waiter's", second.Token, first.Token)
	}
	w.queueIsClean(name)
	next.mustUnlock(waiting)
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

// stoppedWaiter stands still while the lock comes to it, or, late, until its time is over.
func stoppedWaiter(w *world, late bool) {
	const name = "stopped"
	holder, sleeper, next := w.actor("holder", withoutReaper), w.actor("sleeper", withoutReaper),
		w.actor("next", withoutReaper)
	first := holder.mustLock(name)
	sleeping := w.queue(sleeper, name)
	waiting := w.queue(next, name)
	sleeper.stop()
	if late {
		w.untilWaiterOver(name)
	}
	holder.mustUnlock(first.Op)
	second := next.held(waiting)
	sleeper.resume()
	eventually(w, "the sleeper stands in the queue again, or has the lock", func() bool {
		_, ended := sleeper.find(sleeping, evHeld, evRefused)
		return ended || w.waiters(name) == 1
	})
	if lost, ok := next.find(waiting, evLost); ok {
		w.starved(lost.Err)
	}
	if e, ok := sleeper.find(sleeping, evHeld, evRefused); ok {
		w.Errorf("the sleeper's Lock ended with %v while another held", e)
	}
	next.mustUnlock(waiting)
	w.rises(second, sleeper.held(sleeping))
	sleeper.mustUnlock(sleeping)
	w.queueIsClean(name)
	w.exclusive(holder, sleeper, next)
}
