package runtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

const (
	ttl = 2 * time.Second
	// patience is how long everything may take to end, once there are no faults any more.
	patience = 20 * ttl
)

// names are those that actors lock. The first is the one that most want.
var names = []string{"n", "o"}

// world is some machines and their database. Only its scheduler, the goroutine of play, uses what
// mu does not protect, while all others are blocked.
type world struct {
	rng        *rand.Rand
	tables     *tables
	journal    *journal
	machines   []*machine
	actors     []*actor
	statements []*statement
	commits    []*transaction // on their way
	listeners  []*listener
	faults     int  // how many of a hundred steps are a fault
	haste      bool // little time passes, so that cohorts stay in memory
	plain      int  // how many of a hundred things that are done with a lock are Unlock
	detaching  int  // how many of the others are Detach
	given      int  // how many of the rest are UnlockTx
	breaks     int  // how many of a thousand steps are a Break, an Ask or a Close
	steps      int
	gentle     bool // no fault happens
	ending     bool // likewise, and nobody asks for a lock any more
	start      time.Time
	bad        string
	last       []line

	mu         sync.Mutex // protects what follows
	arrived    []*statement
	departed   []*statement // whose callers wait no more
	connecting []*listener
	deaf       []*listener // that listen no more
	finished   []func()    // what calls of actors have returned
}

// machine is one process with a client.
type machine struct {
	world   *world
	index   int
	began   time.Time
	frozen  atomic.Int64 // where its clock stands, while it is stopped; 0: it goes
	client  *client.Client
	stopped bool
	cut     bool      // it reaches the database no more
	until   time.Time // when it is to go on
	shaky   time.Time // until then its session may end
	closing bool
	closed  bool
	failed  bool // Close has failed, or a statement of it: what is left is taken from the dead
}

func (m *machine) String() string { return string(rune('A' + m.index)) }

func (m *machine) clock() time.Duration {
	if at := m.frozen.Load(); at != 0 {
		return time.Duration(at)
	}
	return time.Since(m.began)
}

// mute reports whether nothing goes between the machine and the database.
func (m *machine) mute() bool { return m.stopped || m.cut }

// disturb notes that the machine's session may end for what happens until then.
func (m *machine) disturb(until time.Time) { m.shaky = until.Add(2 * ttl) }

// disturbed reports whether the session may have ended by now, or may end soon.
func (m *machine) disturbed() bool { return time.Now().Before(m.shaky) }

func newWorld(seed uint64, b bug) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), start: time.Now()}
	w.faults = []int{0, 2, 5, 10}[w.rng.IntN(4)]
	w.haste, w.plain, w.given, w.breaks = w.rng.IntN(3) > 0, []int{40, 70, 95}[w.rng.IntN(3)],
		[]int{20, 70}[w.rng.IntN(2)], []int{0, 2, 30}[w.rng.IntN(3)]
	w.detaching = []int{0, 10, 50}[w.rng.IntN(3)]
	w.journal = newJournal(w)
	w.tables = newTables()
	w.tables.journal, w.tables.notify, w.tables.freeByTx, w.tables.bug = w.journal, w.notify, w.rng.IntN(2) == 0, b
	w.tables.exclusive = !w.tables.freeByTx && w.rng.IntN(2) == 0
	for range 2 + w.rng.IntN(2) {
		m := &machine{world: w, index: len(w.machines), began: time.Now().Add(-time.Hour)}
		m.client = client.New(engine{m: m}, client.Config{
			TTL: ttl, Host: m.String(), App: "runtest", Log: testlog.New(io.Discard,
				func(args ...any) { w.fail("%v", args) }), Clock: clock.Func(m.clock),
			NotAcquired: func(_ driver.State, _ bool, cause error) error {
				return fmt.Errorf("%w: %w", client.ErrNotAcquired, cmp.Or(cause, errHeld))
			},
			Deadlocked: func(deadlock.Cycle) error { return client.ErrDeadlock },
		})
		w.machines = append(w.machines, m)
		for range 1 + w.rng.IntN(8) {
			w.actors = append(w.actors, newActor(m, len(w.actors)))
		}
	}
	return w
}

// play does so many steps, lets everything end, and closes the machines. It returns what is wrong.
func (w *world) play(steps int) string {
	for w.steps < steps && w.bad == "" {
		w.step()
		w.quiet()
	}
	w.end()
	return w.bad
}

// fail notes what is wrong, the first time.
func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.note("WRONG: "+format, args...)
		w.bad = fmt.Sprintf(format, args...)
	}
}

// remembered is how many lines of its history a world keeps.
const remembered = 600

// line is a line of the history. It is put into words when it is read.
type line struct {
	step   int
	at     time.Time
	format string
	args   []any
	rows   []string // as they were then
}

// note adds a line to the history.
func (w *world) note(format string, args ...any) {
	if w.bad != "" {
		return
	}
	l := line{step: w.steps, at: time.Now(), format: format, args: args}
	for _, name := range names {
		if row, there := w.tables.Locks.Row(name); there {
			l.rows = append(l.rows, w.journal.row(row))
		}
	}
	w.last = append(w.last, l)
	if len(w.last) > 2*remembered {
		w.last = slices.Delete(w.last, 0, remembered)
	}
}

// history is the last steps, in words.
func (w *world) history() string {
	var text strings.Builder
	for _, l := range w.last[max(0, len(w.last)-remembered):] {
		fmt.Fprintf(&text, "%5d %8.3fs %-70s", l.step, l.at.Sub(w.start).Seconds(), fmt.Sprintf(l.format, l.args...))
		for _, r := range l.rows {
			fmt.Fprintf(&text, " | %s", r)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// row is a row in words: the highest token, the holders with their tokens, the places.
func (j *journal) row(row protocol.Row) string {
	text := fmt.Sprintf("%s %d", row.Name, row.Token)
	for _, h := range j.world.tables.Holders(row.Name) {
		text += fmt.Sprintf(" [%s %d-%d]", j.number(h.Attempt), h.First, h.Token)
	}
	for _, p := range j.world.tables.Locks.Places(row.Name) {
		text += fmt.Sprintf(" %d:%s", p.Ticket, j.number(p.Attempt))
		if p.Members > 1 {
			text += fmt.Sprintf("×%d", p.Members)
		}
	}
	return text
}

// said is what came of a statement, in words.
type said struct {
	w *world
	s *statement
}

func (t said) String() string {
	answer, err := t.s.said()
	if err != nil {
		return err.Error()
	}
	j := t.w.journal
	var words []string
	own := func(attempt string, g protocol.Grant) {
		words = append(words, fmt.Sprintf("%s has %d", j.number(attempt), g.Token))
	}
	switch a := answer.(type) {
	case none:
	case []protocol.Result:
		for _, result := range a {
			words = append(words, [...]string{"undone", "queued", "done"}[result.Outcome])
			if result.Grant.Token != 0 {
				words = append(words, fmt.Sprint("granted ", result.Grant.Token))
			}
			for _, n := range result.Next {
				own(n.Attempt, n.Grant)
			}
		}
	case []driver.State:
		for _, s := range a {
			for _, o := range s.Granted {
				own(o.Attempt, o.Grant)
			}
			for _, attempt := range s.Queued {
				words = append(words, j.number(attempt)+" waits")
			}
		}
	case []driver.Claim:
		for _, c := range a {
			words = append(words, fmt.Sprintf("%s %s %d", c.Name, j.number(c.Attempt), c.Token))
		}
	default:
		words = append(words, fmt.Sprint(a))
	}
	return strings.Join(words, ", ")
}

func (w *world) add(s *statement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived = append(w.arrived, s)
}

func (w *world) leave(s *statement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.departed = append(w.departed, s)
}

func (w *world) listen(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connecting = append(w.connecting, l)
}

func (w *world) unlisten(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = append(w.deaf, l)
}

// finish tells the scheduler what a call of an actor has returned.
func (w *world) finish(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = append(w.finished, do)
}

// notify sends a hint to a session that listens.
func (w *world) notify(session string, h protocol.Hint) {
	for _, l := range w.listeners {
		if l.session == session && l.connected {
			l.hints = append(l.hints, h)
		}
	}
}

// doubt notes that a statement's caller does not learn what came of it.
func (w *world) doubt(s *statement) {
	if s.kind == "resume" {
		w.journal.grants[key(s.about.name, s.about.token)].shaky = true
	}
	for _, a := range w.actors {
		if a.m == s.m && a.risky && a.hold != nil && a.hold.name == s.about.name {
			a.hold.shaky = true
		}
	}
}

// detached reports whether a row's lock is detached.
func (w *world) detached(row protocol.Row) bool {
	s := w.tables.SessionRows[row.Session]
	return s != nil && s.Detached
}

// resumable are the rows whose locks are detached, and now and then one that is held. In the end
// those whose time is over are left to the others.
func (w *world) resumable() (rows []protocol.Row) {
	for _, name := range names {
		row, _ := w.tables.Locks.Row(name)
		if w.detached(row) && !(w.ending && !w.tables.Locks.Alive(row.Session)) ||
			row.Session != "" && !w.ending && w.rng.IntN(100) == 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// quiet returns when every goroutine is blocked on what the scheduler does next, and the judge has
// looked.
func (w *world) quiet() {
	for {
		synctest.Wait()
		w.collect()
		if !w.serve() {
			break
		}
	}
	w.journal.judge()
}

// collect takes in what the goroutines have done since the last step, in an order of its own.
func (w *world) collect() {
	w.mu.Lock()
	arrived, departed, finished, connecting, deaf := w.arrived, w.departed, w.finished, w.connecting, w.deaf
	w.arrived, w.departed, w.finished, w.connecting, w.deaf = nil, nil, nil, nil, nil
	w.mu.Unlock()
	for _, s := range departed {
		s.left = true
	}
	for _, l := range deaf {
		l.over = true
	}
	for _, s := range w.statements {
		if s.left && !s.doubtful {
			s.doubtful = true
			w.doubt(s)
		}
	}
	for _, s := range arrived {
		s.who = w.journal.sent(s)
		s.sent = !s.m.mute()
	}
	slices.SortStableFunc(arrived, func(a, b *statement) int {
		return cmp.Or(cmp.Compare(a.m.index, b.m.index), cmp.Compare(a.kind, b.kind), cmp.Compare(a.who, b.who))
	})
	w.statements = append(w.statements, arrived...)
	slices.SortStableFunc(connecting, func(a, b *listener) int { return cmp.Compare(a.m.index, b.m.index) })
	w.listeners = append(w.listeners, connecting...)
	w.listeners = slices.DeleteFunc(w.listeners, func(l *listener) bool { return l.over })
	w.statements = slices.DeleteFunc(w.statements, func(s *statement) bool {
		return s.left && (s.done || s.about.served)
	})
	for _, do := range finished {
		do()
	}
}

// serve lets pass what no choice depends on, and reports whether there was something.
func (w *world) serve() (some bool) {
	for _, s := range slices.Clone(w.statements) {
		if !s.about.served || s.m.mute() {
			continue
		}
		some = true
		w.drop(s)
		if w.rng.IntN(1000) < w.faults && !w.gentle {
			s.m.disturb(time.Now())
			w.note("%s: the connection breaks", s)
			s.lose()
			continue
		}
		s.run()
		s.answer()
	}
	return some
}

func (w *world) drop(s *statement) {
	w.statements = slices.DeleteFunc(w.statements, func(other *statement) bool { return other == s })
}

// step does one thing.
func (w *world) step() {
	w.steps++
	n := w.rng.IntN(100)
	switch {
	case n < w.faults && w.fault():
	case w.rng.IntN(1000) < w.breaks && w.interfere():
	case n < 55 && w.work():
	case n < 68 && w.tell():
	case n < 83 && w.act():
	case n < 85 && w.commit():
	default:
		w.pass()
	}
}

// one draws one of several; false: there is none.
func one[E any](w *world, of []E) (e E, any bool) {
	if len(of) == 0 {
		return e, false
	}
	return of[w.rng.IntN(len(of))], true
}

// some are those of which something is true.
func some[E any](of []E, is func(E) bool) (list []E) {
	for _, e := range of {
		if is(e) {
			list = append(list, e)
		}
	}
	return list
}

// calm does everything that there is to do, without a fault, until something is true.
func (w *world) calm(until func() bool) bool {
	w.gentle = true
	defer func() { w.gentle = w.ending }()
	limit, most := time.Now().Add(patience), w.steps+20_000 // more steps than that go round and round
	for ; w.bad == ""; w.quiet() {
		w.quiet()
		if until() {
			return true
		}
		if time.Now().After(limit) || w.steps > most {
			return false
		}
		w.steps++
		if !w.work() && !w.tell() && !(w.ending && w.act()) && !w.commit() {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return false
}

// end lets everything come to its end, and looks at what is left.
func (w *world) end() {
	if w.bad != "" {
		w.abandon()
		return
	}
	w.ending = true
	w.note("from here on nothing goes wrong")
	for _, m := range w.machines {
		if m.mute() {
			w.resume(m)
		}
	}
	idle := func() bool { return !slices.ContainsFunc(w.actors, (*actor).active) }
	if !w.calm(idle) {
		w.fail("not every call has returned: %v", some(w.actors, (*actor).active))
	}
	// what is detached is resumed, or its time passes
	if !w.calm(func() bool { return idle() && w.journal.remains(true) == "" }) {
		w.fail("when all is unlocked there is left: %s", w.journal.remains(true))
	}
	for _, m := range w.machines {
		if !m.closing {
			w.close(m)
		}
	}
	if !w.calm(func() bool { return !slices.ContainsFunc(w.machines, func(m *machine) bool { return !m.closed }) }) {
		w.fail("Close does not return")
	}
	// a late heartbeat has revived a session that nobody has
	if !w.calm(func() bool { return w.journal.remains(false) == "" }) {
		w.fail("when all is closed there is left: %s", w.journal.remains(false))
	}
	w.abandon()
}

// abandon ends what is left of a world that went wrong: every statement fails, until nothing runs
// any more.
func (w *world) abandon() {
	bad := w.bad
	for _, m := range w.machines {
		w.resume(m)
	}
	for _, a := range w.actors {
		a.abandon()
	}
	closed := 0
	for _, m := range w.machines {
		go func() {
			_ = m.client.Close(context.Background())
			w.finish(func() { closed++ })
		}()
	}
	for range 10_000 {
		synctest.Wait()
		w.collect()
		for _, s := range w.statements {
			if !s.left {
				s.left = true
				s.lose()
			}
		}
		w.statements = nil
		if closed == len(w.machines) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.bad = bad
}
