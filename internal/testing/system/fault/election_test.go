//go:build unix

package fault

import (
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

const (
	candidates = 5
	observers  = 2
	office     = "office"
)

// electionRound ends one term after the other: the leader is killed, stopped until another leads,
// or ends in good order, and the server dies.
func electionRound(w *world) {
	o := outage{}
	switch {
	case w.engine == dbtest.KindSQLite:
		o = w.hogging()
	case w.server != nil:
		o = outage{w.server.Kill, func() {
			w.server.Start()
			eventually(w, "the test has a connection again",
				func() bool { return w.sql.PingContext(w.Context()) == nil })
		}}
	}
	newBallot(w, o).run()
}

// ballot is one election and its processes.
type ballot struct {
	*world
	outage    outage     // nil: the server must not die
	running   []*process // the candidates of now
	all       []*process // those before them, too
	observers []*process
}

func newBallot(w *world, o outage) *ballot {
	w.Helper()
	b := &ballot{world: w, outage: o, running: make([]*process, candidates)}
	for i := range observers {
		b.observers = append(b.observers, b.launch(fmt.Sprintf("observer %d", i), "observe"))
	}
	for _, p := range b.observers {
		p.await(1, evSaw)
	}
	for i := range candidates {
		b.nominate(i)
	}
	return b
}

// launch starts a process that does one thing, with number 1.
func (b *ballot) launch(label, verb string, change ...func(c *actorConfig)) *process {
	b.Helper()
	config := actorConfig{Kind: b.db.Kind, DSN: b.db.DSN, TTL: ttl, Reaper: true, Bug: b.bug}
	for _, f := range change {
		f(&config)
	}
	p := launch(b.world, label, config)
	p.send(command{Verb: verb, Name: office, Names: []string{label}})
	return p
}

// nominate starts a process that campaigns, in place of one that has ended.
func (b *ballot) nominate(i int) {
	b.Helper()
	b.running[i] = b.launch(fmt.Sprintf("candidate %d", len(b.all)), "campaign")
	b.all = append(b.all, b.running[i])
}

func (b *ballot) run() {
	b.Helper()
	faults := []func(){b.crash, b.standstill, b.crash, b.standstill, func() { b.handOver(true) },
		func() { b.handOver(false) }}
	if b.outage.begin != nil {
		faults = append(faults, b.serverDies)
	}
	for end := session.Boottime() + b.length; ; {
		sleeper := b.observers[b.random.IntN(observers)]
		asleep := b.random.IntN(3) == 0
		if asleep {
			b.halt(sleeper)
		}
		faults[b.random.IntN(len(faults))]()
		b.tried("terms brought about", 1)
		if asleep {
			sleeper.resume()
		}
		if session.Boottime() > end {
			break
		}
	}
	b.settle()
	b.agree()
	for _, p := range append(slices.Clone(b.observers), b.running...) {
		b.gone(p, p.send(command{Verb: "exit"}))
	}
}

// settle waits until one leads and all others wait, and returns its place and its term.
func (b *ballot) settle() (place int, term event) {
	b.Helper()
	if !within(patience, func() bool {
		var leads bool
		place, term, leads = b.leader()
		return leads && b.allWait(place) && b.count("SELECT token FROM dblock_locks WHERE name = '%s'",
			office) == term.Token
	}) {
		b.dump()
		for _, p := range b.running {
			if e, ok := p.find(1, evRefused); ok {
				b.Logf("%s campaigns no more: %s", p.label, e.Err)
			}
		}
		b.Fatalf("not in %v: one leads and all others wait; the latest is %s with token %d", patience,
			b.running[place].label, term.Token)
	}
	return place, term
}

// allWait reports whether all candidates but one have a place in the queue. Places are not counted:
// one of a session that is over is there for a while.
func (b *ballot) allWait(but int) bool {
	b.Helper()
	for i, p := range b.running {
		if i != but && b.count("SELECT count(*) FROM dblock_waiters q JOIN dblock_sessions s ON s.id = q.session_id "+
			"WHERE q.name = '%s' AND s.pid = %d", office, p.cmd.Process.Pid) == 0 {
			return false
		}
	}
	return true
}

// leader returns the process that began the latest term, if that has not ended.
func (b *ballot) leader() (place int, term event, leads bool) {
	for i, p := range b.running {
		for _, e := range p.all() {
			switch {
			case e.What == evHeld && e.Token > term.Token:
				place, term, leads = i, e, true
			case e.What == evLost && e.Token == term.Token:
				leads = false
			}
		}
	}
	return place, term, leads
}

// next waits for the term after one.
func (b *ballot) next(what string, after event) {
	b.Helper()
	eventually(b, "the next leads after a "+what, func() bool {
		_, term, _ := b.leader()
		return term.Token > after.Token
	})
}

func (b *ballot) crash() {
	b.Helper()
	place, term := b.settle()
	b.running[place].kill()
	b.next("crash", term)
	b.nominate(place)
}

// standstill stops the leader until another leads.
func (b *ballot) standstill() {
	b.Helper()
	place, term := b.settle()
	b.halt(b.running[place])
	b.next("standstill", term)
	pass(ttl / 10)
	b.running[place].resume()
}

func (b *ballot) serverDies() {
	b.Helper()
	_, term := b.settle()
	b.tried("outages", 1)
	b.outage.begin()
	pass(ttl * 3 / 2)
	b.outage.end()
	b.next("restart of the server", term)
}

// handOver ends a term in good order: the leader's process ends, or it resigns.
func (b *ballot) handOver(exit bool) {
	b.Helper()
	place, term := b.settle()
	p := b.running[place]
	if exit {
		op := p.send(command{Verb: "exit"})
		b.next("shutdown", term)
		b.gone(p, op)
		b.nominate(place)
		return
	}
	op := p.send(command{Verb: "resign", Name: office})
	b.next("resignation", term)
	if e := p.await(op, evDone); e.Err != "" && !b.lost(term) {
		b.Errorf("%s: %s", p.label, e.Err)
	}
}

// gone waits for a process that goes in good order, which it does whether or not the database has
// time for it: SQLite has none while others are at the write lock.
func (b *ballot) gone(p *process, exit int) {
	b.Helper()
	if e := p.await(exit, evDone); e.Err != "" && !e.is(kindUnavailable) {
		b.Errorf("%s: exit: %s", p.label, e.Err)
	}
	<-p.ended
}

// lost reports whether a term was over before its end was brought about.
func (b *ballot) lost(term event) bool {
	for _, p := range b.all {
		for _, e := range p.all() {
			if e.What == evLost && e.Token == term.Token && e.is(kindLost) {
				return true
			}
		}
	}
	return false
}
