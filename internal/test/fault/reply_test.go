//go:build unix

package fault

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

// resolved is the limit for finding the outcome of a request after its reply was dropped: before
// the lease would have ended.
var resolved = ttl * 9 / 10

// loss is a reply that gets lost. The requests that name the lock come in a fixed order, so that a
// number tells which of them it is; where the last is part of a transaction of several requests,
// its COMMIT is.
type loss struct {
	call   string // of Backend; Release: Vacate by the holder
	nth    int
	commit bool
}

var (
	lossOfTake    = loss{"Take", 1, false}
	lossOfEnqueue = loss{"Enqueue", 2, true} // after Take
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
		last := !l.commit || f.w.db.Kind == dbtest.KindPostgres || bytes.HasSuffix(request, []byte("COMMIT")) // not READ COMMITTED
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

func TestALostReplyIsFoundOut(t *testing.T) {
	each(t, func(w *world) {
		for name, scenario := range map[string]func(w *world, name string){
			"take": lostTake, "enqueue": lostEnqueue, "release": lostRelease, "hand-off": lostHandOff,
			"take and cancel": lostTakeCancelled, "enqueue and cancel": lostEnqueueCancelled,
		} {
			w.Run(name, func(t *testing.T) {
				scenario(&world{T: t, db: w.db, sql: w.sql}, "lost "+name)
			})
		}
	})
}

// used gives a name its row: without one, that is made first.
func (w *world) used(name string) {
	w.Helper()
	p := w.actor("before")
	p.mustUnlock(p.mustLock(name).Op)
	p.exit()
}

func lostTake(w *world, name string) {
	w.used(name)
	f := w.forgetful(lossOfTake)
	var op int
	f.lose(name, lossOfTake, func() { op = f.lock(name) }, func() bool { return w.isHeld(name) })
	at := session.Boottime()
	e := f.held(op)
	if took := e.At - at; took > resolved {
		w.Errorf("Lock returned %v after its reply was lost", took)
	}
	if n := w.count("SELECT token FROM dblock_locks WHERE name = '%s'", name); n != e.Token {
		w.Errorf("the lock has token %d, its holder %d", n, e.Token)
	}
	f.mustUnlock(op)
	if w.isHeld(name) {
		w.Error("held after Unlock")
	}
	f.exit()
}

func lostTakeCancelled(w *world, name string) {
	w.used(name)
	f := w.forgetful(lossOfTake)
	var op int
	f.lose(name, lossOfTake, func() {
		op = f.lock(name)
		eventually(w, "taken", func() bool { return w.isHeld(name) })
		f.send(command{Verb: "cancel", Hold: op})
	}, func() bool {
		_, over := f.find(op, evRefused, evHeld)
		return over
	})
	at := session.Boottime()
	if e := f.await(op, evRefused, evHeld); e.What == evHeld { // the reply was heard before the cancel
		f.mustUnlock(op)
	}
	if !within(resolved, func() bool { return !w.isHeld(name) }) {
		w.Errorf("still held %v after the caller had gone", session.Boottime()-at)
	}
	f.exit()
}

func lostEnqueue(w *world, name string) {
	f, holder := w.forgetful(lossOfEnqueue), w.actor("holder")
	first := holder.mustLock(name)
	var op int
	f.lose(name, lossOfEnqueue, func() { op = f.lock(name) }, func() bool { return w.waiters(name) == 1 })
	at := session.Boottime()
	if !within(resolved, func() bool {
		ticket, there := w.number("SELECT max(ticket) FROM dblock_waiters WHERE name = '%s' HAVING count(*) = 1", name)
		return there && ticket == 2 // the place that was lost had the first
	}) {
		w.Errorf("%v after the reply was lost there are %d places in the queue, or it is the lost one", session.Boottime()-at, w.waiters(name))
	}
	released := holder.mustUnlock(first.Op)
	second := f.held(op)
	if took := second.At - released.At; took > resolved {
		w.Errorf("granted %v after the release", took)
	}
	w.queueIsClean(name)
	f.mustUnlock(op)
	f.exit()
	holder.exit()
}

func lostEnqueueCancelled(w *world, name string) {
	f, holder := w.forgetful(lossOfEnqueue), w.actor("holder")
	first := holder.mustLock(name)
	var op int
	f.lose(name, lossOfEnqueue, func() {
		op = f.lock(name)
		eventually(w, "queued", func() bool { return w.waiters(name) == 1 })
		f.send(command{Verb: "cancel", Hold: op})
	}, func() bool {
		_, over := f.find(op, evRefused)
		return over
	})
	at := session.Boottime()
	if !within(resolved, func() bool { return w.waiters(name) == 0 }) {
		w.Errorf("still in the queue %v after the caller had gone", session.Boottime()-at)
	}
	holder.mustUnlock(first.Op)
	// The caller may have left while it asked anew: what came of that is given back when it is
	// answered.
	if !within(resolved, func() bool { return !w.isHeld(name) && w.waiters(name) == 0 }) {
		w.Error("granted to a caller that had gone")
	}
	f.exit()
	holder.exit()
}

func lostRelease(w *world, name string) {
	w.unstarved(func(try string) bool { return lostReleaseOnce(w, name+try) })
}

func lostReleaseOnce(w *world, name string) (starved bool) {
	f, next := w.forgetful(lossOfRelease), w.actor("next")
	first := f.mustLock(name)
	f.lose(name, lossOfRelease, func() { f.send(command{Verb: "unlock", Hold: first.Op}) }, func() bool { return !w.isHeld(name) })
	at := session.Boottime()
	if e := f.await(first.Op, evUnlocked); starvation(e.Err) {
		starved = true
	} else if e.Err != "" || e.At-at > resolved {
		w.Errorf("Unlock returned %q after %v", e.Err, e.At-at)
	}
	if second := next.mustLock(name); second.Token <= first.Token {
		w.Errorf("token %d after %d", second.Token, first.Token)
	}
	f.exit()
	next.exit()
	return starved
}

func lostHandOff(w *world, name string) {
	w.unstarved(func(try string) bool { return lostHandOffOnce(w, name+try) })
}

func lostHandOffOnce(w *world, name string) (starved bool) {
	f, next := w.forgetful(lossOfHandOff), w.actor("next")
	first := f.mustLock(name)
	waiting := w.queue(next, name)
	var second event
	f.lose(name, lossOfHandOff, func() { f.send(command{Verb: "unlock", Hold: first.Op}) }, func() bool {
		var ok bool
		second, ok = next.find(waiting, evHeld)
		return ok
	})
	at := session.Boottime()
	if e := f.await(first.Op, evUnlocked); starvation(e.Err) {
		starved = true
	} else if e.Err != "" || e.At-at > resolved {
		w.Errorf("Unlock returned %q after %v", e.Err, e.At-at)
	}
	if n := w.count("SELECT token FROM dblock_locks WHERE name = '%s'", name); n != second.Token || n <= first.Token {
		w.Errorf("the lock has token %d, its holder %d, before it %d", n, second.Token, first.Token)
	}
	next.mustUnlock(waiting)
	f.exit()
	next.exit()
	return starved
}

// losing does what it is told and says that it failed, the first time that a call is made.
type losing struct {
	driver.Backend
	call string
	done sync.Once
}

var errReplyLost = driver.Fail(driver.ErrUnavailable, errors.New("the reply was lost"))

// lose turns success into a loss.
func (b *losing) lose(call string, err error) error {
	if err == nil && b.call == call {
		b.done.Do(func() { err = errReplyLost })
	}
	return err
}

func (b *losing) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := b.Backend.Take(ctx, r)
	if taken {
		err = b.lose("Take", err)
	}
	return g, taken && err == nil, err
}

func (b *losing) Enqueue(ctx context.Context, rs ...driver.Request) (driver.Grant, driver.Outcome, error) {
	g, outcome, err := b.Backend.Enqueue(ctx, rs...)
	return g, outcome, b.lose("Enqueue", err)
}

func (b *losing) Vacate(ctx context.Context, v driver.Vacancy) ([]driver.Handoff, bool, error) {
	next, left, err := b.Backend.Vacate(ctx, v)
	if v.Cause == driver.ByHolder {
		err = b.lose("Release", err)
	}
	return next, left, err
}
