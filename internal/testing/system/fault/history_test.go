//go:build unix

package fault

import (
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// What is found in a history.
const (
	exclusion  = "exclusion"  // more believed than may, by a sweep through time
	tokens     = "tokens"     // more believed than may, or tokens did not rise, by a sweep through the tokens
	order      = "order"      // either, by a search for an order of all that was done
	fairness   = "fairness"   // not in the order of the queue
	hearsay    = "hearsay"    // the same, as the actors tell it
	losses     = "loss"       // a session was told that it is dead, and was not
	vacancy    = "vacancy"    // a waiter was not granted although it fit
	quiescence = "quiescence" // after arrivals stopped, a waiter waited on
	leaks      = "leaks"      // something was left behind
	surprises  = "surprises"  // an error that nothing explains
)

const (
	slots   = 3 // actors at a time
	crewman = 4 // workers of each, on two clients
	spell   = 3 * time.Second
	// searchable is how many grants an order is searched for in reasonable time.
	searchable = 50000
)

// history is what some actors do to some locks, under faults.
type history struct {
	*world
	names   []string
	running [slots]*process
	proxies [slots]*dbtest.Proxy // nil: SQLite
	all     []*process
	faults  []fault
	healed  time.Duration // when the last fault ended
	quiet   bool          // arrivals are stopped
	silent  time.Duration // a bound against hanging
	room    *vacancies
	found   map[string][]string
}

// fault is something done to an actor.
type fault struct {
	span
	victim *process
	what   string
}

// historyRound works under faults; where a bug was seeded that shows without any, there are none,
// and nobody waits for long.
func historyRound(w *world) {
	names := []string{"a", "b", readName, permitsName}
	switch w.bug {
	case "":
	case bugCountsOne, bugLetsSmallPass:
		names = names[3:]
	case bugWriterBeside, bugReaderBeside, bugUpgradesBeside, bugDowngradesToNothing, bugLetsReadersPass:
		names = names[2:3]
	case bugOneTooMany, bugForgetsUnits, bugLeavesRoom:
		names = names[2:]
	default:
		names = []string{"a", "b", "c"}
	}
	h := newHistory(w, names...)
	if h.run(w.length, w.bug == "" || w.bug == bugAsksNobody) && w.bug == "" {
		h.close()
	}
	h.check()
	if w.records() && w.bug == "" {
		delete(h.found, hearsay)
	}
	for checker, texts := range h.found {
		w.tell(checker, texts)
	}
	if w.Failed() {
		for _, f := range h.faults {
			w.Logf("%v to %v: %s: %s", f.from, f.to, f.victim.label, f.what)
		}
	}
}

func newHistory(w *world, names ...string) *history {
	w.Helper()
	h := &history{world: w, names: names, silent: patience, found: map[string][]string{}}
	if w.bug != "" {
		h.silent = 2 * ttl
	}
	w.resource(h.names...)
	w.audit()
	h.room = w.vacancies()
	for i := range slots {
		if w.db.Kind != dbtest.KindSQLite {
			h.proxies[i] = w.proxy()
		}
		h.start(i)
	}
	return h
}

func (h *history) start(i int) {
	h.Helper()
	p := h.actor(fmt.Sprintf("actor %d", len(h.all)), func(c *actorConfig) {
		c.Seed, c.Long, c.Reaper = h.random.Uint64(), 1, i != 0
		if slices.Contains(slowBugs, h.bug) {
			c.Long = 30
		}
		if h.proxies[i] != nil {
			c.DSN = h.db.Through(h, h.proxies[i]).DSN
		}
	})
	workers := crewman
	if h.db.Kind == dbtest.KindSQLite {
		workers /= 2 // SQLite in Go is slow under the race detector, and all its writers wait for each other
	}
	p.work(modeChaos, workers, h.names...)
	h.running[i], h.all = p, append(h.all, p)
}

func (h *history) find(checker, format string, args ...any) {
	h.found[checker] = append(h.found[checker], fmt.Sprintf(format, args...))
}

// run lets them work for a time, in rounds, each of which ends in silence; false: one did not, and
// they are stuck.
func (h *history) run(length time.Duration, faults bool) bool {
	h.Helper()
	h.healed = session.Boottime()
	for end := session.Boottime() + max(length, time.Second); session.Boottime() < end; {
		if h.quiet {
			for _, p := range h.running {
				p.await(p.send(command{Verb: "resume"}), evDone)
			}
		}
		for over := min(end, session.Boottime()+spell); session.Boottime() < over; {
			pass(time.Duration(h.random.Int64N(int64(300 * time.Millisecond))))
			if faults {
				h.fault()
			}
		}
		if !h.silence() {
			return false
		}
	}
	return true
}

// silence stops arrivals: all waiters must be granted, and no row be left in the tables.
func (h *history) silence() bool {
	h.Helper()
	h.quiet = true
	var ops [slots]int
	for i, p := range h.running {
		ops[i] = p.send(command{Verb: "pause"})
	}
	at := session.Boottime()
	limit := func() time.Duration { return max(h.healed, at) + h.silent - session.Boottime() }
	if !within(limit(), func() bool {
		for i, p := range h.running {
			if _, idle := p.find(ops[i], evIdle); !idle {
				return false
			}
		}
		return true
	}) {
		for _, p := range h.running {
			for _, op := range p.waiting() {
				h.find(quiescence, "%s still waits with %d", p.label, op)
			}
		}
		h.dump()
		return false
	}
	h.Logf("quiet after %v", session.Boottime()-at)
	used := func() int64 {
		return h.count("SELECT count(*) FROM dblock_waiters WHERE name <> ''") +
			h.count("SELECT count(*) FROM dblock_shares") +
			h.count("SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL OR waiters <> 0 OR shared_units "+
				"<> 0")
	}
	if !within(limit(), func() bool { return used() == 0 }) {
		h.find(leaks, "nobody waits for or holds anything, and %d rows say otherwise", used())
		h.dump()
		return false
	}
	return true
}

// waiting are the acquires that have not returned.
func (p *process) waiting() (ops []int) {
	open := map[int]bool{}
	for _, e := range p.all() {
		switch e.What {
		case evAsked:
			open[e.Op] = true
		case evHeld, evRefused:
			delete(open, e.Op)
		}
	}
	for op := range open {
		ops = append(ops, op)
	}
	return ops
}

// close ends the actors in good order, and looks for what is left.
func (h *history) close() {
	h.Helper()
	for _, p := range h.running {
		if e := p.await(p.send(command{Verb: "exit"}), evDone); e.Err != "" {
			h.find(leaks, "%s: %s", p.label, e.Err)
		}
	}
	if !h.Failed() {
		h.nothingIsLeft()
	}
}

// check reads the history so far.
func (h *history) check() {
	h.Helper()
	leaves := map[string]bool{}
	grants, ends, lost := 0, 0, 0
	for _, p := range h.all {
		for _, e := range p.all() {
			switch {
			case e.What == evLeave:
				leaves[e.Attempt] = true
			case e.What == evWronged:
				h.find(losses, "%s was told that session %s is dead, and it lives", p.label, e.Session)
			case (e.What == evRefused || e.What == evConverted) && e.surprising():
				h.find(surprises, "%s: %s of %s: %s", p.label, e.Portion, e.Name, e.Err)
			}
		}
		for _, hold := range p.holds() {
			grants++
			if hold.until != forever {
				ends++
			}
			if hold.lost != 0 {
				lost++
			}
		}
	}
	h.Logf("%d grants, %d ended, %d lost; %d places given up; %d faults; %d actors", grants, ends, lost, len(leaves),
		len(h.faults), len(h.all))
	h.room.mu.Lock()
	h.found[vacancy] = append(h.found[vacancy], h.room.found...)
	h.Logf("%d looks for vacancies", h.room.looks)
	h.room.mu.Unlock()
	h.found[exclusion] = append(h.found[exclusion], crowded(holdsOf(h.all...))...)
	h.found[tokens] = append(h.found[tokens], misplaced(holdsOf(h.all...))...)
	if grants <= searchable {
		h.found[order] = append(h.found[order], impossible(h.all, patience)...)
	}
	h.found[fairness] = append(h.found[fairness], h.unfair(leaves)...)
	h.found[hearsay] = append(h.found[hearsay], unfairAsTold(h.all, leaves)...)
}

// surprising reports whether nothing that a crew or a fault does explains an error. There are no
// cycles of waiters.
func (e event) surprising() bool {
	switch {
	case e.Err == "":
		return false
	case e.is(kindDeadlock), e.is(kindCapacity):
		return true
	}
	return !e.is(kindNotAcquired) && !e.is(kindUnavailable) && !e.is(kindLost) && !e.is(kindClosed) &&
		!e.is(kindNotHeld) && !e.is(kindEnded)
}
