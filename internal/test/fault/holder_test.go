//go:build unix

package fault

import (
	"testing"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

func TestAKilledHolderIsSucceededWithinTTL(t *testing.T) {
	each(t, func(w *world) {
		for name, options := range map[string][]func(*actorConfig){"reaped": nil, "no reaper anywhere": {withoutReaper}} {
			w.Run(name, func(t *testing.T) {
				w := &world{T: t, db: w.db, sql: w.sql}
				holder, waiter := w.actor("holder", options...), w.actor("waiter", options...)
				first := holder.mustLock(name)
				next := w.queue(waiter, name)
				leaseEnd := w.leaseEnd(name)
				killed := holder.kill()
				second := waiter.held(next)
				w.Logf("granted %v after the kill", second.At-killed.from)
				if took := second.At - killed.to; took > promised+scheduling {
					w.Errorf("granted %v after the kill, promised are %v", took, promised)
				}
				if early := leaseEnd - second.At; early > 0 {
					w.Errorf("granted %v before the dead holder's lease could have ended", early)
				}
				if second.Token <= first.Token {
					w.Errorf("token %d after %d", second.Token, first.Token)
				}
				waiter.mustUnlock(next)
				waiter.exit()
			})
		}
	})
}

// SQLite has no network; what cuts a holder off there is another process in a write transaction,
// see outage_test.go.
func TestACutOffHolderStopsBelievingBeforeTheNextGrant(t *testing.T) {
	eachServer(t, func(w *world) {
		for name, cut := range map[string]func(*dbtest.Proxy){"cut": (*dbtest.Proxy).Cut, "frozen": (*dbtest.Proxy).Freeze} {
			w.Run(name, func(t *testing.T) {
				w := &world{T: t, db: w.db, sql: w.sql}
				proxy := w.proxy()
				holder, waiter := w.actor("holder", w.through(proxy)), w.actor("waiter")
				first := holder.mustLock(name)
				next := w.queue(waiter, name)
				at := session.Boottime()
				cut(proxy)
				second, lost := waiter.held(next), holder.await(first.Op, evLost)
				w.Logf("lost %v and granted %v after the cut, last believed in %v before the grant", lost.At-at, second.At-at, second.At-lost.Live)
				w.succeeded(first, lost, second)
				if took := second.At - at; took > promised+scheduling {
					w.Errorf("granted %v after the cut, promised are %v", took, promised)
				}
				if lost.At-at < ttl/2 || lost.Live < at {
					w.Errorf("lost %v after the cut, believed in until %v after it: four heartbeats may fail", lost.At-at, lost.Live-at)
				}
				proxy.Heal()
				if e := holder.unlock(first.Op); !e.is(kindLost) {
					w.Errorf("unlock of a lost lock: %q", e.Err)
				}
				// What the network held back arrives now, and changes nothing.
				again := w.queue(holder, name)
				waiter.mustUnlock(next)
				if third := holder.held(again); third.Token <= second.Token {
					w.Errorf("token %d after %d", third.Token, second.Token)
				}
				holder.mustUnlock(again)
				holder.exit()
				waiter.exit()
			})
		}
	})
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
	if late := lost.At - second.At; late > scheduling {
		w.Errorf("told %v after the next grant", late)
	}
	if second.Token <= first.Token {
		w.Errorf("token %d after %d", second.Token, first.Token)
	}
}

func TestAStoppedHolderLearnsOfItsLossAtOnceAndItsTokenIsRefused(t *testing.T) {
	each(t, func(w *world) {
		const name = "stopped"
		w.resource(name)
		holder, waiter := w.actor("holder"), w.actor("waiter")
		first := holder.mustLock(name)
		next := w.queue(waiter, name)
		at := holder.stop()
		second := waiter.held(next)
		if took := second.At - at; took > promised+scheduling {
			w.Errorf("granted %v after the stop, promised are %v", took, promised)
		}
		if e := waiter.write(next); e.Rows != 1 || e.Err != "" {
			w.Errorf("the new holder's write: %d rows, %q", e.Rows, e.Err)
		}
		resumed := holder.resume()
		if e := holder.write(first.Op); e.Rows != 0 || e.Err != "" {
			w.Errorf("the stale write: %d rows, %q", e.Rows, e.Err)
		}
		lost := holder.await(first.Op, evLost)
		w.Logf("lost %v after it went on", lost.At-resumed)
		if took := lost.At - resumed; took > scheduling {
			w.Errorf("it took %v to learn of the loss", took)
		}
		if !lost.is(kindLost) || second.Token <= first.Token {
			w.Errorf("ended with %q; token %d after %d", lost.Err, second.Token, first.Token)
		}
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
	})
}

// A short stop is survived: four of five heartbeats may fail.
func TestAStopShorterThanTTLLosesNothing(t *testing.T) {
	each(t, func(w *world) {
		const name = "briefly"
		holder, waiter := w.actor("holder"), w.actor("waiter")
		first := holder.mustLock(name)
		next := w.queue(waiter, name)
		holder.stop()
		pass(ttl / 2)
		holder.resume()
		pass(ttl) // a lease that was not renewed after the stop would end now
		if e := holder.mustUnlock(first.Op); e.Token >= waiter.held(next).Token {
			w.Error("the token did not rise")
		}
		waiter.mustUnlock(next)
		if holder.count(evLost)+waiter.count(evLost) != 0 {
			w.Error("a lock was lost")
		}
	})
}
