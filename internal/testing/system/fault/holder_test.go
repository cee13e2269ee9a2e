//go:build unix

package fault

import (
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func killedHolder(w *world, options ...func(*actorConfig)) {
	const name = "killed"
	options = append(options, w.elsewhere)
	holder, waiter := w.actor("holder", options...), w.actor("waiter", options...)
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	leaseEnd := w.leaseEnd(name)
	holder.kill()
	second := waiter.held(next)
	if early := leaseEnd - second.At; early > 0 {
		w.Errorf("granted %v before the dead holder's lease could have ended", early)
	}
	w.rises(first, second)
	waiter.mustUnlock(next)
	waiter.exit()
}

// rises fails where the token of the second grant is not above that of the first.
func (w *world) rises(first, second event) {
	w.Helper()
	if second.Token <= first.Token {
		w.Errorf("token %d after %d", second.Token, first.Token)
	}
}

// SQLite has no network; what cuts a holder off there is another process in a write transaction,
// see outage_test.go.
func cutOffHolder(w *world, cut func(*dbtest.Proxy)) {
	const name = "cut off"
	proxy := w.proxy()
	holder, waiter := w.actor("holder", w.through(proxy)), w.actor("waiter", func(c *actorConfig) { c.Bug = "" })
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	w.tried("network faults", 1)
	cut(proxy)
	second := waiter.held(next)
	holder.send(command{Verb: "unlock", Hold: first.Op})
	if e := holder.await(first.Op, evEnding); e.Live >= second.At {
		w.Fatalf("believed in for %v after the next grant", e.Live-second.At)
	}
	proxy.Heal()
	w.succeeded(first, holder.await(first.Op, evLost), second)
	if e := holder.await(first.Op, evUnlocked); !e.is(kindLost) {
		w.Errorf("unlock of a lost lock: %q", e.Err)
	}
	// What the network held back arrives now, and changes nothing.
	again := w.queue(holder, name)
	waiter.mustUnlock(next)
	w.rises(second, holder.held(again))
	holder.mustUnlock(again)
	holder.exit()
	waiter.exit()
}

// succeeded checks that a lock was lost before it was granted again.
func (w *world) succeeded(first, lost, second event) {
	w.Helper()
	if !lost.is(kindLost) {
		w.Errorf("the context ended with %q", lost.Err)
	}
	if lost.Live >= second.At {
		w.Errorf("believed in for %v after the next grant", lost.Live-second.At)
	}
	w.rises(first, second)
}

func stoppedHolder(w *world) {
	const name = "stopped"
	w.resource(name)
	holder, waiter := w.actor("holder"), w.actor("waiter")
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	holder.stop()
	second := waiter.held(next)
	if e := waiter.write(next); e.Rows != 1 || e.Err != "" {
		w.Errorf("the new holder's write: %d rows, %q", e.Rows, e.Err)
	}
	holder.resume()
	if e := holder.write(first.Op); e.Rows != 0 || e.Err != "" {
		w.Errorf("the stale write: %d rows, %q", e.Rows, e.Err)
	}
	if lost := holder.await(first.Op, evLost); !lost.is(kindLost) {
		w.Errorf("ended with %q", lost.Err)
	}
	w.rises(first, second)
	if e := holder.unlock(first.Op); !e.is(kindLost) {
		w.Errorf("unlock of a lost lock: %q", e.Err)
	}
	if n := w.count("SELECT n FROM resource"); n != 1 {
		w.Errorf("%d writes went through, want the new holder's", n)
	}
	waiter.mustUnlock(next)
	// The process is as good as new.
	holder.mustUnlock(holder.mustLock(name).Op)
	holder.exit()
	waiter.exit()
}

// A short stop is survived, as far as the machine has time for heartbeats: four of five may fail.
func shortStop(w *world) {
	const name = "briefly"
	holder, waiter := w.actor("holder"), w.actor("waiter")
	first := holder.mustLock(name)
	next := w.queue(waiter, name)
	holder.stop()
	pass(ttl / 2)
	holder.resume()
	pass(ttl) // a lease that was not renewed after the stop would end now
	holder.mustUnlock(first.Op)
	w.rises(first, waiter.held(next))
	waiter.mustUnlock(next)
}
