//go:build unix

package fault

import "testing"

func TestAKilledWaiterDoesNotStallTheQueue(t *testing.T) {
	each(t, func(w *world) {
		w.Run("its lease is over when the lock comes", func(t *testing.T) {
			w, name := &world{T: t, db: w.db, sql: w.sql}, "over"
			// Without reapers its place is still there.
			holder, head, next := w.actor("holder", withoutReaper), w.actor("head", withoutReaper), w.actor("next", withoutReaper)
			first := holder.mustLock(name)
			w.queue(head, name)
			waiting := w.queue(next, name)
			head.kill()
			w.untilWaiterOver(name)
			released := holder.mustUnlock(first.Op)
			second := next.held(waiting)
			if took := second.At - released.At; took > scheduling {
				w.Errorf("granted %v after the release", took)
			}
			w.queueIsClean(name)
			next.mustUnlock(waiting)
		})
		w.Run("the lock goes to it first", func(t *testing.T) {
			w, name := &world{T: t, db: w.db, sql: w.sql}, "first"
			holder, head, next := w.actor("holder"), w.actor("head"), w.actor("next")
			first := holder.mustLock(name)
			w.queue(head, name)
			waiting := w.queue(next, name)
			killed := head.kill()
			holder.mustUnlock(first.Op)
			second := next.held(waiting)
			if took := second.At - killed.to; took > promised+scheduling {
				w.Errorf("granted %v after the kill, promised are %v", took, promised)
			}
			if second.Token <= first.Token+1 {
				w.Errorf("token %d after %d and the dead waiter's", second.Token, first.Token)
			}
			w.queueIsClean(name)
			next.mustUnlock(waiting)
		})
	})
}

func (w *world) queueIsClean(name string) {
	w.Helper()
	rows, counted := w.waiters(name), w.count("SELECT waiters FROM dblock_locks WHERE name = '%s'", name)
	if rows != 0 || counted != 0 {
		w.Errorf("%d places in the queue, the lock counts %d", rows, counted)
	}
	rows, counted = w.count("SELECT COALESCE(sum(units), 0) FROM dblock_shares WHERE name = '%s'", name), w.count("SELECT shared_units FROM dblock_locks WHERE name = '%s'", name)
	if rows != counted {
		w.Errorf("%d units are held, the lock counts %d", rows, counted)
	}
}

func TestAStoppedWaiterQueuesAgain(t *testing.T) {
	each(t, func(w *world) {
		for name, late := range map[string]bool{"granted while it stood still": false, "passed over": true} {
			w.Run(name, func(t *testing.T) {
				w, name := &world{T: t, db: w.db, sql: w.sql}, "stopped"
				holder, sleeper, next := w.actor("holder", withoutReaper), w.actor("sleeper", withoutReaper), w.actor("next", withoutReaper)
				first := holder.mustLock(name)
				sleeping := w.queue(sleeper, name)
				waiting := w.queue(next, name)
				stopped := sleeper.stop()
				if late {
					w.untilWaiterOver(name)
				}
				released := holder.mustUnlock(first.Op)
				second := next.held(waiting)
				if took := second.At - released.At; late && took > scheduling {
					w.Errorf("granted %v after the release", took)
				}
				if took := second.At - stopped; took > promised+scheduling {
					w.Errorf("granted %v after the stop, promised are %v", took, promised)
				}
				sleeper.resume()
				eventually(w, "the sleeper stands in the queue again", func() bool { return w.waiters(name) == 1 })
				if e, ok := sleeper.find(sleeping, evHeld, evRefused); ok {
					w.Errorf("the sleeper's Lock ended with %v while another held", e)
				}
				next.mustUnlock(waiting)
				third := sleeper.held(sleeping)
				if third.Token <= second.Token {
					w.Errorf("token %d after %d", third.Token, second.Token)
				}
				sleeper.mustUnlock(sleeping)
				w.queueIsClean(name)
				w.exclusive(holder, sleeper, next)
			})
		}
	})
}
