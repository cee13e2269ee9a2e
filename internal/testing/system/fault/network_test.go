//go:build unix

package fault

import (
	"time"
)

// Replies come late: a deadline counts from before the request was sent.
func slowReplies(w *world) {
	const name = "slow"
	w.resource(name)
	proxy := w.proxy()
	slow, quick := w.actor("slow", w.through(proxy)), w.actor("quick")
	slow.work(modeLoad, 2, name)
	quick.work(modeLoad, 2, name)
	w.goesOn([]*process{slow, quick}, 3)
	for _, delay := range []time.Duration{ttl * 8 / 10, ttl * 3 / 10, ttl * 8 / 10} {
		w.tried("network faults", 1)
		proxy.Delay(delay)
		pass(ttl * 3 / 2)
		proxy.Heal()
		w.goesOn([]*process{slow}, 3)
	}
	w.rest(slow, quick)
	w.exclusive(slow, quick)
	w.exact([]string{name}, slow, quick)
	slow.exit()
	quick.exit()
}

// A connect takes longer than a heartbeat may. Broken by a limit on connecting which is that of a
// heartbeat: it would begin anew until everything is lost.
func slowConnects(w *world) {
	proxy := w.proxy()
	holder := w.actor("holder", w.through(proxy))
	first := holder.mustLock("far")
	for range 2 {
		w.tried("network faults", 1)
		proxy.Cut()
		proxy.Heal()
		proxy.DelayConnects(ttl * 35 / 100)
		pass(ttl * 3 / 2)
	}
	proxy.Heal()
	holder.mustUnlock(first.Op)
	holder.exit()
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
