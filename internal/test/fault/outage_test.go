//go:build unix

package fault

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

// ownServers runs a scenario on servers that it may kill. MySQL's takes long to make, and is
// MariaDB's engine.
func ownServers(t *testing.T, scenario func(w *world, server *dbtest.Server)) {
	t.Parallel()
	for kind, own := range map[string]func(testing.TB) *dbtest.Server{
		dbtest.KindPostgres: dbtest.OwnPostgres, dbtest.KindMariaDB: dbtest.OwnMariaDB,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := own(t)
			scenario(newWorld(t, server.Database(t)), server)
		})
	}
}

// outage takes the database away, and gives it back.
type outage struct{ begin, end func() }

// hogging is SQLite's outage: a process in a write transaction that does not end.
func (w *world) hogging() outage {
	w.Helper()
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

var outages = map[string]func(w *world, o outage){
	"shorter than TTL": func(w *world, o outage) {
		w.unstarved(func(try string) (starved bool) {
			name := "short" + try
			holder, waiter := w.actor("holder"), w.actor("waiter")
			first := holder.mustLock(name)
			next := w.queue(waiter, name)
			o.begin()
			pass(ttl / 4) // longer than a heartbeat may take, and what is left is enough for a connect
			o.end()
			pass(ttl) // a lease that was not renewed since would end now
			if e := holder.unlock(first.Op); starvation(e.Err) {
				starved = true
			} else if e.Err != "" || holder.count(evLost) != 0 {
				w.Errorf("a lock was lost: %s", e.Err)
			}
			if second := waiter.held(next); second.Token <= first.Token {
				w.Errorf("token %d after %d", second.Token, first.Token)
			}
			waiter.unlock(next)
			return starved
		})
	},
	"longer than TTL": func(w *world, o outage) {
		const name = "long"
		holder, waiter := w.actor("holder"), w.actor("waiter")
		first := holder.mustLock(name)
		next := w.queue(waiter, name)
		o.begin()
		at := session.Boottime()
		pass(2 * ttl)
		o.end()
		ended := session.Boottime()
		second, lost := waiter.held(next), holder.await(first.Op, evLost)
		w.succeeded(first, lost, second)
		if lost.At-at > ttl+scheduling {
			w.Errorf("told of the loss %v after the database went away", lost.At-at)
		}
		// A heartbeat that the server had received, and ran only now, is one more TTL.
		if took := second.At - ended; took > promised+scheduling {
			w.Errorf("granted %v after the database came back, promised are %v", took, promised)
		}
		if e := holder.unlock(first.Op); !e.is(kindLost) {
			w.Errorf("unlock of a lost lock: %q", e.Err)
		}
		waiter.mustUnlock(next)
		holder.exit()
		waiter.exit()
	},
}

func TestAServerThatStandsStill(t *testing.T) {
	ownServers(t, func(w *world, server *dbtest.Server) {
		for name, scenario := range outages {
			w.Run(name, func(t *testing.T) {
				scenario(&world{T: t, db: w.db, sql: w.sql}, outage{server.Pause, server.Resume})
			})
		}
	})
}

func TestAnSQLiteFileThatAnotherProcessWritesTo(t *testing.T) {
	t.Parallel()
	for name, scenario := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dbtest.SQLite(t))
			w.resource("hogged")
			scenario(w, w.hogging())
		})
	}
}

func TestAServerThatIsKilledUnderLoad(t *testing.T) {
	ownServers(t, func(w *world, server *dbtest.Server) {
		w.underLoad(2, func([]*process) {
			server.Kill()
			server.Start()
		})
	})
}

// SQLite's server is every process that writes.
func TestAnSQLiteProcessThatIsKilledInMidWrite(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	w.underLoad(3, func([]*process) {
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
func (w *world) underLoad(times int, happens func(actors []*process)) {
	w.Helper()
	names, shared := []string{"load a", "load b"}, []string{"read load", "permits load"}
	w.resource(append(names, shared...)...)
	actors := []*process{w.actor("x"), w.actor("y"), w.actor("z")}
	for _, p := range actors {
		p.work(modeLoad, 3, append(names, shared...)...)
	}
	for range times {
		w.goesOn(actors, 20)
		happens(actors)
		at := session.Boottime()
		w.goesOn(actors, 3)
		took := session.Boottime() - at
		w.Logf("everybody goes on %v later", took)
		// One that has lost its lock may wait for another that has, too.
		if took > 2*promised+scheduling {
			w.Errorf("it took %v until everybody went on: a lock that was lost is had again within %v", took, promised)
		}
	}
	w.goesOn(actors, 20)
	w.rest(actors...)
	w.exclusive(actors...)
	w.exact(names, actors...)
	for _, name := range append(names, shared...) {
		w.queueIsClean(name)
		if w.isHeld(name) {
			w.Errorf("%s is still held", name)
		}
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
