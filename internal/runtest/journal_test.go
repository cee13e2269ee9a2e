package runtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/session"
)

// journal is what the judge knows: whose attempt is which, and what was granted, begun and broken.
type journal struct {
	world    *world
	owners   map[string]*actor   // by the name that introduces one
	threads  map[string]*actor   // by host and thread
	attempts map[string]*attempt // by attempt
	grants   map[string]*grant   // by name and token
	highest  map[string]int64    // by name, the highest token that was begun with
	breaks   []*breach
	aims     map[string][]int64 // by the reason of a Break, the tokens that it was called with
	runs     []breach           // each that was granted
}

// attempt is one request of an actor.
type attempt struct {
	driver.Request
	actor    *actor
	doubtful bool // an answer about it was lost
	begun    bool // its actor has begun to believe
	shaky    bool // the answer to what changes its mode was lost, and that may still run
}

// grant is a token.
type grant struct {
	*attempt
	token  int64
	ticket int64 // of the place; where there was none, the next one's
	begun  bool
}

// breach is what a Break took.
type breach struct {
	name    string
	attempt string // of the row
	driver.Range
	known bool // the client has told one of its holders
}

func newJournal(w *world) *journal {
	return &journal{
		world: w, owners: map[string]*actor{}, threads: map[string]*actor{}, attempts: map[string]*attempt{}, grants: map[string]*grant{},
		highest: map[string]int64{}, aims: map[string][]int64{},
	}
}

func key(name string, token int64) string { return fmt.Sprint(name, " ", token) }

// expect names the actor that is introduced.
func (j *journal) expect(name string, a *actor) { j.owners[name] = a }

// sent registers the attempts of a statement, and says whom it is about.
func (j *journal) sent(s *statement) string {
	for _, r := range s.about.requests {
		a := j.threads[r.Host+r.Thread]
		if a == nil {
			a = j.owners[r.Name]
			a.thread = r.Thread
			j.threads[r.Host+r.Thread] = a
		}
		if j.attempts[r.Attempt] == nil {
			j.again(a, r)
			j.attempts[r.Attempt] = &attempt{Request: r, actor: a}
		}
		a.attempt = r.Attempt
	}
	var who strings.Builder
	fmt.Fprintf(&who, "%s %d", s.about.name, s.about.token)
	for _, r := range s.about.requests {
		fmt.Fprintf(&who, " %s", j.actorOf(r.Attempt))
	}
	for _, attempt := range s.about.attempts {
		fmt.Fprintf(&who, " %s", j.actorOf(attempt))
	}
	return who.String()
}

func (j *journal) actorOf(attempt string) string {
	if known := j.attempts[attempt]; known != nil {
		return known.actor.String()
	}
	return "-"
}

// again looks whether an actor that waits queues up once more, with its first place still there.
func (j *journal) again(a *actor, r driver.Request) {
	before := j.attempts[a.attempt]
	if before == nil || j.broke(before) || before.doubtful || before.begun || before.Session != r.Session || before.Name != r.Name || a.cancelled || a.m.closing {
		return
	}
	if row := j.world.tables.rows[r.Name]; row != nil && row.has(before.Request) && j.world.tables.alive(r.Session) && !a.m.disturbed() {
		j.world.fail("%s asks anew, and the tables still have its first attempt", a)
	}
}

// has reports whether an attempt has a place, or the lock.
func (r *row) has(q driver.Request) bool {
	return r.holder.Attempt == q.Attempt || slices.ContainsFunc(r.queue, func(p place) bool { return p.Attempt == q.Attempt })
}

// doubt notes that a statement's caller does not learn what came of it.
func (j *journal) doubt(s *statement) {
	for _, r := range s.about.requests {
		j.attempts[r.Attempt].doubtful = true
	}
	if g := j.grants[key(s.about.name, s.about.token)]; g != nil && slices.Contains([]string{"raise", "upgrade", "downgrade"}, s.kind) {
		g.shaky = true
	}
}

// granted notes a token. The tables call it.
func (j *journal) granted(r *row, q driver.Request, token, ticket int64) {
	if j.grants[key(r.name, token)] != nil {
		j.world.fail("token %d of %s is granted twice", token, r.name)
	}
	j.grants[key(r.name, token)] = &grant{attempt: j.attempts[q.Attempt], token: token, ticket: ticket}
}

// ran notes a run. The tables call it.
func (j *journal) ran(r *row) {
	j.runs = append(j.runs, breach{name: r.name, Range: driver.Range{First: r.first, Last: r.last}})
}

// broken notes what a Break takes, and looks whether that has one of its tokens, or is left of a
// run that had.
func (j *journal) broken(r *row, detail string) {
	for reason, tokens := range j.aims {
		if len(tokens) > 0 && strings.HasSuffix(detail, ": "+reason) && r.last != tokens[0] &&
			!slices.ContainsFunc(j.runs, func(run breach) bool { return run.name == r.name && run.Has(tokens[0]) && run.Has(r.last) }) {
			j.world.fail("Break takes token %d, and was meant for %d", r.last, tokens[0])
		}
	}
	j.breaks = append(j.breaks, &breach{name: r.name, attempt: r.holder.Attempt, Range: driver.Range{First: r.first, Last: r.last}})
}

// breachOf is the Break that took a grant, perhaps after its token was raised; nil: none did.
func (j *journal) breachOf(g *grant) *breach {
	for _, b := range j.breaks {
		if b.name == g.Name && (b.First <= g.token && g.token <= b.Last || b.attempt == g.Attempt) {
			return b
		}
	}
	return nil
}

// broke reports whether a Break took what an attempt was granted: it may have had that from the
// run's member before it, and its place is another matter.
func (j *journal) broke(a *attempt) bool {
	for _, g := range j.grants {
		if g.attempt == a && j.breachOf(g) != nil {
			return true
		}
	}
	return false
}

// givenBack looks whether there was a reason to give up an attempt.
func (j *journal) givenBack(q driver.Request) {
	known := j.attempts[q.Attempt]
	a := known.actor
	switch {
	case a.believes() && a.hold != nil && a.hold.Attempt == q.Attempt:
		j.world.fail("what %s believes in is given back", a)
	case a.asking && a.attempt == q.Attempt && !a.cancelled && !known.doubtful && !a.m.closing && !a.m.disturbed() && !a.trying:
		j.world.fail("the place of %s, which waits, is given up", a)
	}
}

// refused looks at the error of Acquire.
func (j *journal) refused(a *actor, err error, asked bool) {
	switch {
	case a.m.closing && errors.Is(err, client.ErrClosed), a.cancelled, errors.Is(err, driver.ErrUnavailable):
	case errors.Is(err, client.ErrNotAcquired) && a.trying:
	case errors.Is(err, client.ErrLost) && !asked:
	case j.world.faults > 0 && (errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrBusy)):
	default:
		j.world.fail("%s gets an error for no reason: %v", a, err)
	}
}

// begin is the first moment of a belief.
func (j *journal) begin(a *actor, l *client.Lock, late bool) {
	w := j.world
	token := l.Token()
	g := j.grants[key(l.Name(), token)]
	w.note("%s: begins %s %d", a, l.Name(), token)
	if g == nil || g.actor != a {
		w.fail("%s begins with token %d, which was not granted to it", a, token)
		return
	}
	a.hold, g.attempt.begun = g, true
	if late {
		w.fail("%s begins with token %d after the deadline of its session", a, token)
	}
	if g.begun {
		w.fail("%s begins with token %d for the second time", a, token)
	}
	g.begun = true
	if l.Context().Err() != nil {
		return
	}
	if b := j.breachOf(g); b != nil {
		if b.known {
			w.fail("%s begins with token %d, and its client knows that it was broken", a, token)
		}
		return
	}
	if token <= j.highest[g.Name] {
		w.fail("%s begins with token %d after token %d", a, token, j.highest[g.Name])
	}
	j.highest[g.Name] = max(j.highest[g.Name], token)
	for _, p := range w.tables.rows[g.Name].queue {
		if p.ticket < g.ticket && j.waits(p) {
			w.fail("%s begins with ticket %d before %s with ticket %d", a, g.ticket, j.actorOf(p.Attempt), p.ticket)
		}
	}
}

// waits reports whether somebody waits with a place, and will.
func (j *journal) waits(p place) bool {
	known := j.attempts[p.Attempt]
	a := known.actor
	return a.asking && a.attempt == p.Attempt && !a.cancelled && !known.doubtful && !a.m.closing && j.world.tables.alive(p.Session) && !a.m.disturbed()
}

// changed notes the token that an actor has after a call.
func (j *journal) changed(a *actor) {
	if len(a.locks) == 0 || a.hold == nil {
		return
	}
	token := a.locks[0].Token()
	if g := j.grants[key(a.want, token)]; g != nil && token > a.hold.token {
		a.hold = g
		if a.believes() && j.breachOf(g) == nil {
			j.highest[g.Name] = max(j.highest[g.Name], token)
		}
	}
}

// guarded looks at the commit of a transaction that guards a hold.
func (j *journal) guarded(r *row, token int64) {
	if j.highest[r.name] > token {
		j.world.fail("a transaction that was guarded with token %d of %s commits after token %d has begun", token, r.name, j.highest[r.name])
	}
}

// judge looks at all who believe.
func (j *journal) judge() {
	w := j.world
	for _, name := range names {
		var believer *actor
		for _, a := range w.actors {
			if len(a.locks) == 0 || a.hold == nil || a.hold.Name != name {
				continue
			}
			if !a.ended && a.locks[0].Context().Err() != nil {
				a.ended = true
				j.lost(a)
			}
			if !a.believes() || j.breachOf(a.hold) != nil {
				continue
			}
			if believer != nil {
				w.fail("%s (token %d) and %s (token %d) both have %s", believer, believer.hold.token, a, a.hold.token, name)
			}
			believer = a
			r := w.tables.rows[name]
			if r.holder.Session != a.hold.Session || r.holder.Attempt != a.hold.Attempt && (a.hold.token < r.first || a.hold.token > r.last) {
				w.fail("%s believes in token %d of %s, and the row says otherwise", a, a.hold.token, name)
			}
		}
	}
}

// lost looks whether there was a reason for the end of a lock that was not unlocked.
func (j *journal) lost(a *actor) {
	cause := context.Cause(a.locks[0].Context())
	w := j.world
	w.note("%s: its lock ends: %v", a, cause)
	b := j.breachOf(a.hold)
	switch {
	case errors.Is(cause, session.ErrExpired), errors.Is(cause, session.ErrKilled):
		if !a.m.disturbed() {
			w.fail("the session of %s ends for no reason: %v", a, cause)
		}
	case errors.Is(cause, client.ErrClosed) && a.m.closing, a.given:
	case b != nil:
		b.known = true
	case errors.Is(cause, client.ErrLost) && !a.hold.shaky && w.tables.alive(a.hold.Session):
		w.fail("%s loses token %d of %s for no reason: %v", a, a.hold.token, a.hold.Name, cause)
	}
}

// unlocked looks at what Unlock has returned.
func (j *journal) unlocked(a *actor, err error) {
	if errors.Is(err, client.ErrLost) && !a.ended && !a.given && !a.m.disturbed() && !a.hold.shaky && j.breachOf(a.hold) == nil {
		j.world.fail("%s unlocks token %d of %s, and is told that it was lost: %v", a, a.hold.token, a.hold.Name, err)
	}
}

// left is what the tables have, of living sessions or of all that did not die of their time.
func (j *journal) left(living bool) string {
	w := j.world
	var all []string
	of := func(id string) bool {
		s := w.tables.sessions[id]
		return w.tables.alive(id) || !living && s.ended && !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.failed && m.String() == s.host })
	}
	for _, name := range names {
		r := w.tables.rows[name]
		if r == nil {
			continue
		}
		if r.held() && of(r.holder.Session) {
			all = append(all, fmt.Sprintf("%s is held by %s", name, j.actorOf(r.holder.Attempt)))
		}
		for _, p := range r.queue {
			if of(p.Session) {
				all = append(all, fmt.Sprintf("a place of %s in the queue of %s", j.actorOf(p.Attempt), name))
			}
		}
	}
	return strings.Join(all, ", ")
}
