//go:build unix

package fault

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// loss is a reply that gets lost. The requests that name the lock come in a fixed order, so that a
// number tells which of them it is; where the last is part of a transaction of several requests,
// its COMMIT is.
type loss struct {
	call   string // of Backend; Release: Remove by the holder
	nth    int
	commit bool
}

var (
	lossOfTake    = loss{"Take", 1, false}
	lossOfJoin    = loss{"Join", 2, true} // after Take
	lossOfRelease = loss{"Release", 1, false}
	lossOfHandOff = loss{"Release", 2, true} // after the release that suffices when nobody waits
)

// forgetful is an actor that loses the reply to one request.
type forgetful struct {
	*process
	w     *world
	proxy *dbtest.Proxy // nil: the actor's own engine drops it
}

// SQLite has no network: there the engine's answer is turned into an error after it did its work.
func (w *world) forgetful(l loss) *forgetful {
	w.Helper()
	if w.db.Kind == dbtest.KindSQLite {
		return &forgetful{w.actor("forgetful", func(c *actorConfig) { c.Lose = l.call }), w, nil}
	}
	proxy := w.proxy()
	// Without a reaper, because its transactions end in a COMMIT as well.
	return &forgetful{w.actor("forgetful", w.through(proxy), withoutReaper), w, proxy}
}

// lose drops the reply, once, and returns when the database has done what was asked, and the
// connection is gone.
func (f *forgetful) lose(name string, l loss, act func(), done func() bool) {
	f.w.Helper()
	if f.proxy == nil {
		act()
		eventually(f.w, l.call+" is done", done)
		return
	}
	var once sync.Once
	var seen atomic.Int32
	nth := l.nth
	if l == lossOfTake && f.w.db.Kind != dbtest.KindPostgres {
		nth++ // after a look for a row that is locked
	}
	f.proxy.Watch(func(request []byte) {
		if bytes.Contains(request, []byte(name)) {
			seen.Add(1)
		}
		// not READ COMMITTED
		last := !l.commit || f.w.db.Kind == dbtest.KindPostgres || bytes.HasSuffix(request, []byte("COMMIT"))
		if int(seen.Load()) >= nth && last {
			once.Do(f.proxy.DropReplies)
		}
	})
	act()
	eventually(f.w, l.call+" is done", done)
	f.proxy.Watch(nil)
	f.proxy.Cut()
	f.proxy.Heal()
}

func (w *world) isHeld(name string) bool {
	return w.count("SELECT count(*) FROM dblock_locks WHERE name = '%s' AND session_id IS NOT NULL", name) == 1
}

// used gives a name its row: without one, that is made first.
func (w *world) used(name string) {
	w.Helper()
	p := w.actor("before")
	p.mustUnlock(p.mustLock(name).Op)
	p.exit()
}

const lostName = "lost"

func lostTake(w *world) {
	w.used(lostName)
	f := w.forgetful(lossOfTake)
	var op int
	f.lose(lostName, lossOfTake, func() { op = f.lock(lostName) }, func() bool { return w.isHeld(lostName) })
	e := f.held(op)
	if n := w.count("SELECT token FROM dblock_locks WHERE name = '%s'", lostName); n != e.Token &&
		f.count(evLost) == 0 {
		w.Errorf("the lock has token %d, its holder %d", n, e.Token)
	}
	f.mustUnlock(op)
	if w.isHeld(lostName) {
		w.Error("held after Unlock")
	}
	f.exit()
}

func lostTakeCancelled(w *world) {
	w.used(lostName)
	f := w.forgetful(lossOfTake)
	var op int
	f.lose(lostName, lossOfTake, func() {
		op = f.lock(lostName)
		eventually(w, "taken, or answered", func() bool {
			_, over := f.find(op, evRefused, evHeld)
			return over || w.isHeld(lostName)
		})
		f.send(command{Verb: "cancel", Hold: op})
	}, func() bool {
		_, over := f.find(op, evRefused, evHeld)
		return over
	})
	if e := f.await(op, evRefused, evHeld); e.What == evHeld { // the reply was heard before the cancel
		f.mustUnlock(op)
	}
	eventually(w, "given back when the caller had gone", func() bool { return !w.isHeld(lostName) })
	f.exit()
}

func lostEnqueue(w *world) {
	f, holder := w.forgetful(lossOfJoin), w.actor("holder")
	first := holder.mustLock(lostName)
	var op int
	f.lose(lostName, lossOfJoin, func() { op = f.lock(lostName) }, func() bool { return w.waiters(lostName) == 1 })
	eventually(w, "one place in the queue, which is not the lost one", func() bool {
		if lost, ok := holder.find(first.Op, evLost); ok {
			w.starved(lost.Err)
		}
		ticket, there := w.number("SELECT max(ticket) FROM dblock_waiters WHERE name = '%s' HAVING count(*) = 1",
			lostName)
		return there && ticket >= 2 // the place that was lost had the first
	})
	holder.mustUnlock(first.Op)
	w.rises(first, f.held(op))
	w.queueIsClean(lostName)
	f.mustUnlock(op)
	f.exit()
	holder.exit()
}

func lostEnqueueCancelled(w *world) {
	f, holder := w.forgetful(lossOfJoin), w.actor("holder")
	first := holder.mustLock(lostName)
	var op int
	f.lose(lostName, lossOfJoin, func() {
		op = f.lock(lostName)
		eventually(w, "queued", func() bool { return w.waiters(lostName) == 1 })
		f.send(command{Verb: "cancel", Hold: op})
	}, func() bool {
		_, over := f.find(op, evRefused)
		return over
	})
	eventually(w, "out of the queue when the caller had gone", func() bool { return w.waiters(lostName) == 0 })
	holder.mustUnlock(first.Op)
	// The caller may have left while it asked anew: what came of that is given back when it is
	// answered.
	eventually(w, "nothing is granted to a caller that has gone", func() bool {
		return !w.isHeld(lostName) && w.waiters(lostName) == 0
	})
	f.exit()
	holder.exit()
}

func lostRelease(w *world) {
	f, next := w.forgetful(lossOfRelease), w.actor("next")
	first := f.mustLock(lostName)
	f.lose(lostName, lossOfRelease, func() { f.send(command{Verb: "unlock", Hold: first.Op}) },
		func() bool { return !w.isHeld(lostName) })
	f.released(first.Op)
	w.rises(first, next.mustLock(lostName))
	f.exit()
	next.exit()
}

// released waits for an Unlock that must succeed, whatever reply was lost.
func (f *forgetful) released(op int) {
	f.w.Helper()
	switch e := f.await(op, evUnlocked); {
	case starvation(e.Err):
		f.w.starved(e.Err)
	case e.Err != "":
		f.w.Errorf("Unlock returned %q", e.Err)
	}
}

func lostHandOff(w *world) {
	f, next := w.forgetful(lossOfHandOff), w.actor("next")
	first := f.mustLock(lostName)
	waiting := w.queue(next, lostName)
	var second event
	f.lose(lostName, lossOfHandOff, func() { f.send(command{Verb: "unlock", Hold: first.Op}) }, func() bool {
		var ok bool
		second, ok = next.find(waiting, evHeld)
		return ok
	})
	f.released(first.Op)
	w.rises(first, second)
	if n := w.count("SELECT token FROM dblock_locks WHERE name = '%s'", lostName); n != second.Token &&
		next.count(evLost) == 0 {
		w.Errorf("the lock has token %d, its holder %d", n, second.Token)
	}
	next.mustUnlock(waiting)
	f.exit()
	next.exit()
}

// losing does what it is told and says that it failed, the first time that a call is made.
type losing struct {
	call string
	done sync.Once
}

func (l *losing) hook(ctx context.Context, c *fakedb.Call) error {
	err, call := c.Do(ctx), ""
	if _, taken := c.Taken(); taken {
		call = "Take"
	} else if _, joins := c.Op().(protocol.Join); joins {
		call = "Join"
	} else if c.Removes(protocol.ByHolder) {
		call = "Release"
	}
	if err == nil && call == l.call {
		l.done.Do(func() { err = fakedb.ErrLost })
	}
	return err
}
