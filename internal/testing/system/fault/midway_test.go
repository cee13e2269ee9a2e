//go:build unix

package fault

import (
	"bytes"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// requests is how many requests of one transition are tried, which is more than any has.
const requests = 6

// A process that is stopped after any request of a transition stands still until others have been
// served: those that wait for the name do not wait for it. Broken by a transaction of several
// statements on a connection that the server lets stand in silence.

// midwayKind is the engine on which a transition is several requests: over pgx it is one.
func (w *world) midwayKind() string {
	if w.db.Kind == dbtest.KindPostgres {
		return kindStdlib
	}
	return w.db.Kind
}

// sleeper is an actor that is stopped while it sends a request of a transition.
type sleeper struct {
	*process
	name    string // of its lock
	op      int
	proxy   *dbtest.Proxy
	stopped chan struct{}
}

// sleepers makes one for each request that a transition may have.
func (w *world) sleepers(kind, prefix string) (all []*sleeper) {
	w.Helper()
	for n := range requests {
		all = append(all, w.sleeper(kind, fmt.Sprint(prefix, " ", n+1), withoutReaper))
	}
	return all
}

func (w *world) sleeper(kind, name string, change ...func(*actorConfig)) *sleeper {
	w.Helper()
	s := &sleeper{name: name, proxy: w.proxy(), stopped: make(chan struct{})}
	s.process = w.actor(name, append(change, w.through(s.proxy), func(c *actorConfig) { c.Kind = kind })...)
	return s
}

// stopAt stops the process before the server has answered the nth request that has the text in it.
func (s *sleeper) stopAt(n int, text string) {
	var mu sync.Mutex
	seen := 0
	s.proxy.Watch(func(request []byte) {
		mu.Lock()
		defer mu.Unlock()
		if !bytes.Contains(request, []byte(text)) {
			return
		}
		if seen++; seen != n {
			return
		}
		s.t.tried("stops", 1)
		_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGSTOP)
		for state(s.cmd.Process.Pid) != 'T' {
			time.Sleep(time.Millisecond)
		}
		close(s.stopped)
	})
}

// stands reports whether the process was stopped; false: it had fewer requests, and is done.
func (s *sleeper) stands(done func() bool) (stopped bool) {
	s.t.Helper()
	eventually(s.t, s.label+" is stopped, or done", func() bool {
		select {
		case <-s.stopped:
			stopped = true
		default:
		}
		return stopped || done()
	})
	return stopped
}

// wake has the process go on, and end in good order.
func (s *sleeper) wake() {
	s.t.Helper()
	s.proxy.Watch(nil)
	select {
	case <-s.stopped:
		_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGCONT)
	default:
	}
	s.exit()
}

// several fails where too few were stopped for the test to mean anything.
func (w *world) several(stops int) {
	w.Helper()
	if stops < 2 {
		w.Errorf("stopped at %d requests: no transition has so few", stops)
	}
}

func stopsInEnqueue(w *world) {
	kind := w.midwayKind()
	holder, next := w.actor("holder"), w.actor("next")
	sleepers := w.sleepers(kind, "enqueue")
	stops := 0
	for n, s := range sleepers {
		first := holder.mustLock(s.name)
		s.stopAt(n+1, s.name)
		s.op = s.lock(s.name)
		if s.stands(func() bool { return w.waiters(s.name) == 1 }) {
			stops++
			waiting := next.lock(s.name)
			holder.send(command{Verb: "unlock", Hold: first.Op})
			s.op = waiting
			continue
		}
		s.proxy.Watch(nil) // what it sends to leave the queue is another transition
		s.send(command{Verb: "cancel", Hold: s.op})
		s.op = 0
		holder.mustUnlock(first.Op)
	}
	w.several(stops)
	for _, s := range sleepers {
		if s.op != 0 {
			next.held(s.op)
			next.mustUnlock(s.op)
		}
		s.wake()
		w.queueIsClean(s.name)
	}
}

func stopsInHandOver(w *world) {
	kind := w.midwayKind()
	next := w.actor("next")
	sleepers := w.sleepers(kind, "hand-over")
	stops := 0
	for n, s := range sleepers {
		first := s.mustLock(s.name)
		s.op = w.queue(next, s.name)
		s.stopAt(n+1, s.name)
		s.send(command{Verb: "unlock", Hold: first.Op})
		if s.stands(func() bool {
			_, done := s.find(first.Op, evUnlocked)
			return done
		}) {
			stops++
		}
	}
	w.several(stops)
	for _, s := range sleepers {
		next.held(s.op)
		next.mustUnlock(s.op)
		s.wake()
		w.queueIsClean(s.name)
	}
}

// stopsInSweep has a dead holder for each name, and one reaper at a time.
func stopsInSweep(w *world) {
	kind := w.midwayKind()
	next := w.actor("next", withoutReaper)
	var sleepers []*sleeper
	stops := 0
	for n := range requests {
		s := w.sleeper(kind, fmt.Sprint("sweep ", n+1))
		s.name += " of the dead"
		s.mustUnlock(s.mustLock(s.label).Op) // without a session a client has no reaper
		dead := w.actor("dead", withoutReaper)
		dead.mustLock(s.name)
		s.stopAt(n+1, s.name)
		dead.kill()
		if !s.stands(func() bool { return !w.isHeld(s.name) }) {
			s.wake()
			break
		}
		stops++
		s.op = next.lock(s.name)
		sleepers = append(sleepers, s)
	}
	w.several(stops)
	for _, s := range sleepers {
		next.held(s.op)
		next.mustUnlock(s.op)
		s.wake()
		w.queueIsClean(s.name)
	}
}
