package runtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
)

// journal is what the judge knows: what was granted, begun and broken.
type journal struct {
	world   *world
	numbers map[string]int    // by attempt, for the history
	tickets map[string]int64  // by attempt, of its place
	grants  map[string]*grant // by name and token
	highest map[string]int64  // by name, the highest token that was begun with, or raised to
	latest  map[string]int64  // by name, the token that was begun with last
	breaks  []*breach
	aims    map[string][]int64 // by the reason of a Break, the tokens that it was called with
	cohorts []breach           // each that was granted
	moves   map[string]int     // by attempt, how often its lock was transferred to another session
}

// grant is a token.
type grant struct {
	name, session, attempt string
	token                  int64
	begun                  bool
	shaky                  bool      // the answer to what changes or resumes it was lost, and that may still run
	until                  time.Time // it is detached, and stays until then unless it is resumed
}

// breach is what a Break took.
type breach struct {
	name    string
	attempt string // of the row
	protocol.Grant
	known bool // the client has told one of its holders
}

func newJournal(w *world) *journal {
	return &journal{
		world: w, numbers: map[string]int{}, tickets: map[string]int64{}, grants: map[string]*grant{},
		highest: map[string]int64{}, latest: map[string]int64{}, aims: map[string][]int64{},
		moves: map[string]int{},
	}
}

func key(name string, token int64) string { return fmt.Sprint(name, " ", token) }

// number is how the history calls an attempt.
func (j *journal) number(attempt string) string {
	if attempt == "" {
		return "-"
	}
	if j.numbers[attempt] == 0 {
		j.numbers[attempt] = len(j.numbers) + 1
	}
	return fmt.Sprint("#", j.numbers[attempt])
}

// sent says what a statement is about.
func (j *journal) sent(s *statement) string {
	var who strings.Builder
	fmt.Fprintf(&who, "%s %d", s.about.name, s.about.token)
	for _, r := range s.about.requests {
		fmt.Fprintf(&who, " %s×%d", j.number(r.Attempt), max(r.Members, 1))
	}
	for _, attempt := range s.about.attempts {
		fmt.Fprintf(&who, " %s", j.number(attempt))
	}
	return who.String()
}

// changed notes what a transition has granted. The tables call it.
func (j *journal) changed(before, row protocol.Row, changes protocol.Changes) {
	if before.Session != "" && (row.Session != before.Session || row.Last != before.Last) {
		j.left(before, row)
	}
	for _, p := range changes.PutPlaces {
		j.tickets[p.Attempt] = p.Ticket
	}
	if row.Session == before.Session && row.Last < before.Last { // detached: nobody has the tokens behind it
		for token := row.Last + 1; token <= before.Last; token++ {
			delete(j.grants, key(row.Name, token))
		}
	}
	if row.Session != "" && (row.Token > before.Token || j.grants[key(row.Name, row.Last)] == nil) {
		for token := row.First; token <= row.Last; token++ {
			j.granted(row, token)
		}
		if row.First < row.Last {
			j.cohorts = append(j.cohorts, breach{name: row.Name, Grant: protocol.Grant{First: row.First,
				Token: row.Last}})
		}
	}
	ticket, queued := j.tickets[row.Attempt]
	if row.Session == "" || row.Attempt == before.Attempt && row.Session == before.Session || !queued {
		return
	}
	for _, p := range j.world.tables.Locks.Places(row.Name) {
		if p.Ticket < ticket && j.world.tables.Locks.Alive(p.Session) {
			j.world.fail("ticket %d of %s is granted before ticket %d", ticket, row.Name, p.Ticket)
		}
	}
}

// left looks at a lock that leaves its session: it is transferred with its token, or has ended.
func (j *journal) left(before, row protocol.Row) {
	w, g := j.world, j.grants[key(before.Name, before.Last)]
	alive := w.tables.Locks.Alive(before.Session)
	switch {
	case row.Session == "" || row.Last != before.Last:
		// a Resume that was not answered ends with its session
		reason := g.shaky || j.breachOf(g) != nil || !alive && !w.tables.SessionRows[before.Session].Detached
		if time.Now().Before(g.until) && !reason {
			w.fail("token %d of %s is detached, and given up %v too early", g.token, g.name, time.Until(g.until))
		}
		return
	case !alive:
		w.fail("token %d of %s is transferred from a session that is over", g.token, g.name)
	}
	for _, a := range w.actors {
		if len(a.locks) > 0 && a.hold == g && a.locks[0].Context().Err() == nil {
			w.fail("what %s believes in is transferred", a)
		}
	}
	j.moves[before.Attempt]++
	g.session, g.attempt, g.begun = row.Session, row.Attempt, false
}

// granted notes a token.
func (j *journal) granted(row protocol.Row, token int64) {
	if j.grants[key(row.Name, token)] != nil {
		j.world.fail("token %d of %s is granted twice", token, row.Name)
	}
	j.grants[key(row.Name, token)] = &grant{name: row.Name, session: row.Session, attempt: row.Attempt, token: token}
}

// removed looks at what leaves a name. attempt is the row's; "": shares have the name. The tables
// call it.
func (j *journal) removed(n *protocol.Name, r protocol.Removal, attempt string) {
	switch r.Cause {
	case protocol.ByForce:
		j.broken(n.Row, r, attempt)
	case protocol.ByAttempt:
		for _, a := range j.world.actors {
			if a.believes() && a.hold != nil && a.hold.attempt == r.Attempt {
				j.world.fail("what %s believes in is given back", a)
			}
		}
	}
}

// broken notes what a Break takes, and looks whether that has one of its tokens, or is left of a
// cohort that had.
func (j *journal) broken(row protocol.Row, r protocol.Removal, attempt string) {
	b := &breach{name: r.Name, attempt: cmp.Or(r.Attempt, attempt)}
	b.Grant = protocol.Grant{First: r.Token, Token: r.Token}
	if row.Last == r.Token {
		b.First = row.First
	}
	for reason, tokens := range j.aims {
		if len(tokens) > 0 && strings.HasSuffix(r.Event.Detail, ": "+reason) && !b.Has(tokens[0]) &&
			!slices.ContainsFunc(j.cohorts, func(c breach) bool {
				return c.name == r.Name && c.Has(tokens[0]) && c.Has(r.Token)
			}) {
			j.world.fail("Break takes token %d, and was meant for %d", r.Token, tokens[0])
		}
	}
	j.breaks = append(j.breaks, b)
}

// breachOf is the Break that took a grant, perhaps after its token was raised; nil: none did.
func (j *journal) breachOf(g *grant) *breach {
	for _, b := range j.breaks {
		if b.name == g.name && (b.Has(g.token) || b.attempt == g.attempt) {
			return b
		}
	}
	return nil
}

// aim is a lock that an actor resumes, as it was when Resume was called.
type aim struct {
	of      *grant
	attempt string
	moves   int
}

func (j *journal) aimAt(row protocol.Row) *aim {
	return &aim{j.grants[key(row.Name, row.Last)], row.Attempt, j.moves[row.Attempt]}
}

// resumable reports whether the lock has been detached all the time since Resume was called.
func (j *journal) resumable(is *aim) bool {
	row, _ := j.world.tables.Locks.Row(is.of.name)
	return j.world.detached(row) && row.Last == is.of.token && row.Attempt == is.attempt &&
		j.moves[is.attempt] == is.moves && j.world.tables.Locks.Alive(row.Session)
}

// refused looks at the error of Acquire or Resume.
func (j *journal) refused(a *actor, err error, asked bool, of *aim) {
	switch {
	case of != nil && errors.Is(err, driver.ErrNotHeld):
		if j.resumable(of) {
			j.world.fail("%s cannot resume token %d of %s for no reason: %v", a, of.of.token, of.of.name, err)
		}
	case a.m.closing && errors.Is(err, client.ErrClosed), a.cancelled, errors.Is(err, driver.ErrUnavailable):
	case errors.Is(err, client.ErrNotAcquired) && a.trying:
	case errors.Is(err, client.ErrLost) && !asked:
	case j.world.faults > 0 && of == nil && (errors.Is(err, driver.ErrRetry) || errors.Is(err, driver.ErrBusy)):
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
	if g == nil || w.tables.SessionRows[g.session].Detached || w.tables.SessionRows[g.session].Host != a.m.String() {
		w.fail("%s begins with token %d, which was not granted to it", a, token)
		return
	}
	a.hold = g
	if late {
		w.fail("%s begins with token %d after the deadline of its session", a, token)
	}
	if g.begun {
		w.fail("%s begins with token %d for the second time", a, token)
	}
	g.begun, g.shaky, g.until = true, false, time.Time{}
	if l.Context().Err() != nil {
		return
	}
	if b := j.breachOf(g); b != nil {
		if b.known {
			w.fail("%s begins with token %d, and its client knows that it was broken", a, token)
		}
		return
	}
	if token < j.highest[g.name] {
		w.fail("%s begins with token %d after token %d", a, token, j.highest[g.name])
	}
	j.highest[g.name] = max(j.highest[g.name], token)
	j.latest[g.name] = token
}

// moved notes the token that an actor has after a call.
func (j *journal) moved(a *actor) {
	if len(a.locks) == 0 || a.hold == nil {
		return
	}
	token := a.locks[0].Token()
	if g := j.grants[key(a.want, token)]; g != nil && token > a.hold.token {
		a.hold, g.begun = g, true
		if a.believes() && j.breachOf(g) == nil {
			j.highest[g.name] = max(j.highest[g.name], token)
		}
	}
}

// guarded looks at the commit of a transaction that guards a hold.
func (j *journal) guarded(h protocol.Held, token int64) {
	if j.latest[h.Name] > token {
		j.world.fail("a transaction that was guarded with token %d of %s commits after token %d has begun", token,
			h.Name, j.latest[h.Name])
	}
}

// judge looks at all who believe.
func (j *journal) judge() {
	w := j.world
	for _, name := range names {
		var believer *actor
		for _, a := range w.actors {
			if len(a.locks) == 0 || a.hold == nil || a.hold.name != name {
				continue
			}
			if !a.ended && a.locks[0].Context().Err() != nil {
				a.ended = true
				j.lost(a)
			}
			if !a.believes() || j.breachOf(a.hold) != nil {
				continue
			}
			if believer != nil && !(believer.locks[0].Shared() && a.locks[0].Shared()) {
				w.fail("%s (token %d) and %s (token %d) both have %s", believer, believer.hold.token, a, a.hold.token,
					name)
			}
			believer = a
			if !slices.ContainsFunc(w.tables.Holders(name), func(h memory.Holder) bool {
				hold := a.hold
				has := h.First <= hold.token && hold.token <= h.Token
				return h.Session == hold.session && (h.Attempt == hold.attempt || has)
			}) {
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
	case errors.Is(cause, client.ErrLost) && !a.hold.shaky && w.tables.Locks.Alive(a.hold.session):
		w.fail("%s loses token %d of %s for no reason: %v", a, a.hold.token, a.hold.name, cause)
	}
}

// unlocked looks at what Unlock has returned.
func (j *journal) unlocked(a *actor, err error) {
	if errors.Is(err, client.ErrLost) && !a.ended && !a.given && !a.m.disturbed() && !a.hold.shaky &&
		j.breachOf(a.hold) == nil {
		j.world.fail("%s unlocks token %d of %s, and is told that it was lost: %v", a, a.hold.token, a.hold.name, err)
	}
}

// detached looks at what Detach has returned, of a lock that an attempt had.
func (j *journal) detached(a *actor, err error, attempt string, until time.Time) {
	j.moved(a)
	w, g := j.world, a.hold
	cause := context.Cause(a.locks[0].Context())
	if cause != nil && !a.ended {
		j.lost(a)
	}
	switch {
	case err == nil && j.moves[attempt] == 0:
		w.fail("%s has detached token %d of %s, and the tables say otherwise", a, g.token, g.name)
	case err == nil && w.tables.SessionRows[g.session].Detached && j.moves[g.attempt] == 0: // nobody has resumed it
		g.until = until
	case errors.Is(err, client.ErrLost) && !errors.Is(cause, client.ErrLost):
		if !a.m.disturbed() && !g.shaky && j.breachOf(g) == nil && j.moves[attempt] == 0 {
			w.fail("%s detaches token %d of %s, and is told that it was lost: %v", a, g.token, g.name, err)
		}
	}
}

// remains is what the tables have, of living sessions or of all that did not die of their time.
func (j *journal) remains(living bool) string {
	w := j.world
	var all []string
	of := func(id string) bool {
		s := w.tables.SessionRows[id]
		// a Detach whose outcome is unknown ends the session that it has made: whoever waits, or
		// the reaper, takes what is left from the dead
		taken := s.Detached || slices.ContainsFunc(w.machines, func(m *machine) bool {
			return m.failed && m.String() == s.Host
		})
		return w.tables.Locks.Alive(id) || !living && w.tables.ended[id] && !taken
	}
	for _, name := range names {
		for _, h := range w.tables.Holders(name) {
			late := !living && j.grants[key(name, h.Token)].shaky // a statement that ran after Close has resumed it
			if of(h.Session) && !late {
				all = append(all, fmt.Sprintf("%s is held by %s", name, j.number(h.Attempt)))
			}
		}
		for _, p := range w.tables.Locks.Places(name) {
			if of(p.Session) {
				all = append(all, fmt.Sprintf("a place of %s in the queue of %s", j.number(p.Attempt), name))
			}
		}
	}
	return strings.Join(all, ", ")
}
