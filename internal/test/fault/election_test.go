//go:build unix

package fault

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/session"
)

const (
	candidates = 5
	observers  = 2
	office     = "office"
)

// What ends a term.
const (
	crashed    = "crash"
	stoodStill = "standstill"
	shutDown   = "shutdown"
	stoodDown  = "resignation"
)

// limit is the time until the next leader. The median is compared with it: on a busy machine a
// single heartbeat or grant can be late without a fault in dblock.
func (b *ballot) limit(what string) (d time.Duration, promised bool) {
	switch what {
	case crashed, stoodStill:
		return b.ttl + time.Second, true
	case shutDown, stoodDown:
		return 0, true
	}
	return 0, false
}

// failovers is DBLOCK_TEST_ELECTION, or a sample that has one of each kind. With it set, MySQL
// takes part.
func failovers(t testing.TB) (n int, all bool) {
	t.Helper()
	text := os.Getenv("DBLOCK_TEST_ELECTION")
	if text == "" {
		return 6, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("DBLOCK_TEST_ELECTION=%s: want a number of failovers", text)
	}
	return n, true
}

func TestElectionsUnderFaults(t *testing.T) {
	t.Parallel()
	n, all := failovers(t)
	t.Run(dbtest.KindSQLite, func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, dbtest.SQLite(t))
		newBallot(w, w.hogging()).run(n)
	})
	kinds := []string{dbtest.KindPostgres, dbtest.KindMariaDB}
	if all {
		kinds = append(kinds, dbtest.KindMySQL)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := ownServer[kind](t)
			w := newWorld(t, server.Database(t))
			newBallot(w, outage{server.Kill, func() {
				server.Start()
				eventually(w, "the test has a connection again", func() bool { return w.sql.PingContext(w.Context()) == nil })
			}}).run(n)
		})
	}
}

// ballot is one election and its processes.
type ballot struct {
	*world
	ttl       time.Duration
	outage    outage
	canary    *canary
	running   []*process // the candidates of now
	all       []*process // those before them, too
	observers []*process
	times     map[string][]time.Duration // from what ended a term to the next
	calm      map[string][]time.Duration // those on a machine that kept up
}

func newBallot(w *world, o outage) *ballot {
	w.Helper()
	b := &ballot{world: w, ttl: dbtest.Scale(time.Second), outage: o, canary: w.canary(), running: make([]*process, candidates), times: map[string][]time.Duration{}, calm: map[string][]time.Duration{}}
	if w.db.Kind == dbtest.KindSQLite { // its write lock has no queue: a heartbeat may have to try for long
		b.ttl = ttl
	}
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
	config := actorConfig{Kind: b.db.Kind, DSN: b.db.DSN, TTL: b.ttl, Reaper: true}
	for _, f := range change {
		f(&config)
	}
	p := launch(b, label, config)
	p.send(command{Verb: verb, Name: office, Names: []string{label}})
	return p
}

// nominate starts a process that campaigns, in place of one that has ended.
func (b *ballot) nominate(i int) {
	b.Helper()
	b.running[i] = b.launch(fmt.Sprintf("candidate %d", len(b.all)), "campaign")
	b.all = append(b.all, b.running[i])
}

func (b *ballot) run(n int) {
	b.Helper()
	for i := range n {
		sleeper := b.observers[i%observers]
		asleep := i%3 == 1
		if asleep {
			b.halt(sleeper)
		}
		switch i % 5 {
		case 0, 2:
			b.crash()
		case 1, 3:
			b.standstill()
		case 4:
			b.serverDies()
		}
		if asleep {
			sleeper.resume()
		}
		if i%2 == 0 {
			b.handOver(i%4 == 0)
		}
	}
	b.settle()
	b.agree()
	b.report()
}

// settle waits until one leads and all others wait, and returns its place and its term.
func (b *ballot) settle() (place int, term event) {
	b.Helper()
	if !within(patience, func() bool {
		var leads bool
		place, term, leads = b.leader()
		return leads && b.allWait(place) && b.count("SELECT token FROM dblock_locks WHERE name = '%s'", office) == term.Token
	}) {
		b.dump()
		for _, p := range b.running {
			if e, ok := p.find(1, evRefused); ok {
				b.Logf("%s campaigns no more: %s", p.label, e.Err)
			}
		}
		b.Fatalf("not in %v: one leads and all others wait; the latest is %s with token %d", patience, b.running[place].label, term.Token)
	}
	return place, term
}

// allWait reports whether all candidates but one have a place in the queue. Places are not counted:
// one of a session that is over is there for a while.
func (b *ballot) allWait(but int) bool {
	b.Helper()
	for i, p := range b.running {
		if i != but && b.count("SELECT count(*) FROM dblock_waiters q JOIN dblock_sessions s ON s.id = q.session_id WHERE q.name = '%s' AND s.pid = %d", office, p.cmd.Process.Pid) == 0 {
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

// next waits for the term after one, and notes how long after a moment it began.
func (b *ballot) next(what string, after event, since time.Duration) {
	b.Helper()
	var term event
	eventually(b, "the next leads after a "+what, func() bool {
		_, term, _ = b.leader()
		return term.Token > after.Token
	})
	b.times[what] = append(b.times[what], term.At-since)
	inOrder := what == shutDown || what == stoodDown
	if !b.canary.choked(term.At) && !(inOrder && b.lost(after)) {
		b.calm[what] = append(b.calm[what], term.At-since)
	}
}

func (b *ballot) crash() {
	b.Helper()
	place, term := b.settle()
	at := b.running[place].kill()
	b.next(crashed, term, at.from)
	b.nominate(place)
}

// standstill stops the leader until another leads.
func (b *ballot) standstill() {
	b.Helper()
	place, term := b.settle()
	at := b.halt(b.running[place])
	b.next(stoodStill, term, at)
	pass(b.ttl / 10)
	b.running[place].resume()
}

// halt stops a process while it does not write to an SQLite file: a stopped writer would stop all
// processes.
func (b *ballot) halt(p *process) time.Duration {
	b.Helper()
	if b.db.Kind != dbtest.KindSQLite {
		return p.stop()
	}
	b.exec("BEGIN IMMEDIATE")
	defer b.exec("ROLLBACK")
	return p.stop()
}

func (b *ballot) serverDies() {
	b.Helper()
	_, term := b.settle()
	b.outage.begin()
	pass(b.ttl * 3 / 2)
	b.outage.end()
	b.next("restart of the server", term, session.Boottime())
}

// handOver ends a term in good order: the leader's process ends, or it resigns.
func (b *ballot) handOver(exit bool) {
	b.Helper()
	place, term := b.settle()
	at, p := session.Boottime(), b.running[place]
	if exit {
		op := p.send(command{Verb: "exit"})
		b.next(shutDown, term, at)
		b.gone(p, op)
		b.nominate(place)
		return
	}
	op := p.send(command{Verb: "resign", Name: office})
	b.next(stoodDown, term, at)
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
