//go:build unix

package fault

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// SQLite has no replies that a network could delay.
func TestADeadlineCountsFromBeforeTheRequestWasSent(t *testing.T) {
	eachServer(t, func(w *world) {
		const name = "slow"
		w.resource(name)
		proxy := w.proxy()
		slow, quick := w.actor("slow", w.through(proxy)), w.actor("quick")
		slow.work(modeLoad, 2, name)
		quick.work(modeLoad, 2, name)
		both := func() bool { return slow.count(evHeld) > 3 && quick.count(evHeld) > 3 }
		eventually(w, "both get the lock", both)
		for _, delay := range []time.Duration{ttl * 8 / 10, ttl * 3 / 10, ttl * 8 / 10} {
			proxy.Delay(delay)
			pass(ttl * 3 / 2)
			proxy.Heal()
			slowed, at := slow.count(evHeld), session.Boottime()
			eventually(w, "the slow one gets the lock again", func() bool { return slow.count(evHeld) > slowed+3 })
			if took := session.Boottime() - at; took > promised+scheduling {
				w.Errorf("%v after the delay the slow one is served again, promised are %v", took, promised)
			}
		}
		w.rest(slow, quick)
		w.exclusive(slow, quick)
		w.exact([]string{name}, slow, quick)
		slow.exit()
		quick.exit()
	})
}

// A connect that takes longer than a heartbeat may. Broken by a limit on connecting which is that
// of a heartbeat: it would begin anew until everything is lost.
func TestAServerThatConnectsSlowlyLosesNothing(t *testing.T) {
	eachServer(t, func(w *world) {
		w.unstarved(func(try string) (starved bool) {
			name := "far" + try
			proxy := w.proxy()
			holder := w.actor("holder", w.through(proxy))
			first := holder.mustLock(name)
			for range 2 {
				proxy.Cut()
				proxy.Heal()
				proxy.DelayConnects(ttl * 35 / 100)
				pass(ttl * 3 / 2)
			}
			proxy.Heal()
			e := holder.unlock(first.Op)
			if starved = starvation(e.Err); !starved && e.Err != "" {
				w.Error(e.Err)
			}
			holder.exit()
			return starved
		})
	})
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
