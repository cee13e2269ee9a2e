package protocol_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
)

// world is one name, with what is known of it without reading its row: who joined before whom, and
// the highest token that was granted.
type world struct {
	row     protocol.Row
	places  []protocol.Place
	shares  []protocol.Share
	now     int64
	over    string // as of table
	dead    string
	used    string   // the attempts that were sent
	queue   []string // the attempts that wait, the first first
	kind    int      // the readers or permits that hold or wait, or did since the name was last free of both; 0: none
	granted int64    // the highest token
	overdue bool     // a rest or a session has ended since the last hand-over
}

func newWorld() world {
	return world{row: protocol.Row{Name: "n", Head: 1, Next: 1}, now: began}
}

// step is one that a world can take: a transition, or an event.
type step struct {
	says  string
	self  string            // the session that asks
	gets  *protocol.Request // what the step may grant without a queue
	grows string            // the attempt whose place the request extends, if that is the last
	owns  string            // the attempt whose hold may change
	loses string            // the attempt that may lose what it has
	seize bool              // which is seized before
	rest  *protocol.Request // what may come before all places
	hands bool              // it hands over where it changes something
	op    protocol.Op
	event func(w *world)
}

func (w *world) alive(session string) bool { return !strings.Contains(w.over+w.dead, session) }

// hold is what an attempt has of the name.
type hold struct {
	attempt, session, host, thread string
	first, last                    int64
	units, of                      int
	ends                           int64
}

func (w *world) holds() map[string]hold {
	holds := map[string]hold{}
	if r := w.row; r.Session != "" {
		holds[r.Attempt] = hold{r.Attempt, r.Session, r.Host, r.Thread, r.First, r.Last, 0, 0, r.Ends}
	}
	for _, s := range w.shares {
		holds[s.Attempt] = hold{s.Attempt, s.Session, s.Host, s.Thread, s.Token, s.Token, s.Units, s.Of, s.Ends}
	}
	return holds
}

// fits says whether there is room for a request beside holders.
func fits(r protocol.Request, holds map[string]hold) bool {
	units, of := r.Units, r.Of
	for _, h := range holds {
		if h.units == 0 || r.Units == 0 {
			return false
		}
		units, of = units+h.units, min(of, h.of)
	}
	return r.Units == 0 || units <= of
}

func count(r protocol.Request) int { return max(r.Members, 1) }

// kindOf is 1 for a reader, 2 for a permit, 0 for the whole name.
func kindOf(r protocol.Request) int {
	switch {
	case r.Units == 0:
		return 0
	case r.Of == protocol.Readers:
		return 1
	}
	return 2
}

// did is what the op of a step has returned and changed. Without an op the step was an event.
type did struct {
	op     protocol.Op
	result protocol.Result
	left   protocol.Changes
	failed error
	seized []string
}

// run runs an op, and returns the world with the rows that it leaves.
func (w world) run(op protocol.Op) (after world, d did) {
	after, d.op = w, op
	names := memory.Names{
		Now: func() int64 { return w.now }, Alive: w.alive,
		Expire: func(session string) bool {
			if strings.Contains(after.over, session) {
				after.over, after.dead = strings.ReplaceAll(after.over, session, ""), after.dead+session
			}
			return strings.Contains(after.dead, session)
		},
		Seize: func(attempt string, _ bool) error {
			d.seized = append(d.seized, attempt)
			return nil
		},
	}
	names.Put(w.row, w.places, w.shares)
	d.result, d.left, d.failed = names.Apply(op)
	after.row, _ = names.Row("n")
	after.places, after.shares = names.Places("n"), names.Shares("n")
	return after, d
}

// take takes a step, and returns the world after it. An error says which rule is broken.
func (w world) take(s step) (after world, d did, err error) {
	if s.event != nil {
		s.event(&w)
		return w, did{}, nil
	}
	after, d = w.run(s.op)
	if d.failed != nil {
		return after, d, w.checkFailure(s, &after, d.failed)
	}
	c := check{before: &w, after: &after, step: s, left: d.left, seized: d.seized, had: w.holds(), has: after.holds()}
	for _, rule := range []func() error{
		c.rows, c.changes, func() error { return c.grants(d.result.Grant, d.result.Done()) }, c.losses,
		func() error { return c.growth(d.result.Ahead) }, c.queue, c.order, c.told,
	} {
		if err := rule(); err != nil {
			return after, d, err
		}
	}
	if r := s.gets; r != nil && (slices.Contains(after.queue, r.Attempt) || c.has[r.Attempt].session != "" ||
		d.result.Ahead > 0) {
		after.used += r.Attempt + "."
	}
	return after, d, nil
}

// sent reports whether an attempt was sent, and had an effect.
func (w *world) sent(attempt string) bool { return strings.Contains("."+w.used, "."+attempt+".") }

// checkFailure: a step that fails has left all as it was, and has a reason.
func (w *world) checkFailure(s step, after *world, failed error) error {
	switch {
	case after.row != w.row || !slices.Equal(after.places, w.places) || !slices.Equal(after.shares, w.shares):
		return fmt.Errorf("%w, and has changed the name", failed)
	case errors.Is(failed, protocol.ErrCapacity) && s.gets != nil && (w.kind == 0 || w.kind == kindOf(*s.gets)):
		return fmt.Errorf("%w: nobody else states that", failed)
	case errors.Is(failed, protocol.ErrCapacity) || errors.Is(failed, protocol.ErrNotHeld):
		return nil
	}
	return failed
}

// check holds a step against the rules, without the code that made it.
type check struct {
	before, after *world
	step          step
	left          protocol.Changes
	seized        []string
	had, has      map[string]hold
}

// rows: the row agrees with the shares and the places.
func (c *check) rows() error {
	r, units, stated, waiters := c.after.row, 0, map[int]bool{}, 0
	for _, s := range c.after.shares {
		units, stated[s.Of] = units+s.Units, true
	}
	for i, p := range c.after.places {
		waiters += count(p.Request)
		if p.Ticket < r.Head || p.Ticket >= r.Next || i > 0 && p.Ticket <= c.after.places[i-1].Ticket {
			return fmt.Errorf("ticket %d is not in order from %d to %d", p.Ticket, r.Head, r.Next)
		}
	}
	switch smallest := slices.Min(append(slices.Collect(maps.Keys(stated)), protocol.Readers+1)); {
	case r.Session != "" && units > 0:
		return fmt.Errorf("the whole name has a holder beside %d units", units)
	case r.Units != units:
		return fmt.Errorf("the row counts %d units of %d", r.Units, units)
	case units > 0 && units > smallest:
		return fmt.Errorf("%d units are held of %d", units, smallest)
	case units > 0 && (r.Capacity != smallest || r.Mixed != (len(stated) > 1)):
		return fmt.Errorf("the row says %d units, mixed %v: the shares state %v", r.Capacity, r.Mixed, stated)
	case r.Waiters != waiters:
		return fmt.Errorf("the row counts %d waiters of %d", r.Waiters, waiters)
	case r.Session != "" && (r.First > r.Last || r.Last > r.Token):
		return fmt.Errorf("tokens %d to %d with %d reserved", r.First, r.Last, r.Token)
	}
	return nil
}

// changes: what goes was there, what is new was not.
func (c *check) changes() error {
	for _, p := range c.left.GonePlaces {
		if !slices.ContainsFunc(c.before.places, func(was protocol.Place) bool {
			return was.Ticket == p.Ticket && was.Attempt == p.Attempt
		}) {
			return fmt.Errorf("place %s goes, and was none", p.Attempt)
		}
	}
	for _, p := range c.left.PutPlaces {
		if slices.ContainsFunc(c.before.places, func(was protocol.Place) bool {
			return was.Ticket == p.Ticket || was.Attempt == p.Attempt
		}) {
			return fmt.Errorf("place %s is put twice", p.Attempt)
		}
	}
	for _, s := range c.left.GoneShares {
		if h, was := c.had[s.Attempt]; !was || h.units == 0 {
			return fmt.Errorf("share %s goes, and was none", s.Attempt)
		}
	}
	if want := len(c.before.places) - len(c.left.GonePlaces) + len(c.left.PutPlaces); want != len(c.after.places) {
		return fmt.Errorf("%d places, want %d", len(c.after.places), want)
	}
	return nil
}

// grants: their tokens rise, the grants have room, and none comes before a rest is over.
func (c *check) grants(direct protocol.Grant, done bool) error {
	all := c.left.Handoffs
	if done && c.step.gets != nil && direct.Token != 0 {
		if len(c.before.queue) > 0 && c.step.owns == "" {
			return errors.New("a request passes those who wait")
		}
		all = append(slices.Clone(all), protocol.Handoff{Session: c.step.gets.Session, Attempt: c.step.gets.Attempt,
			Grant: direct})
	}
	beside := maps.Clone(c.had)
	delete(beside, c.step.loses)
	if h, ok := c.has[c.step.owns]; ok { // it was converted before anything was granted
		beside[c.step.owns] = h
	} else {
		delete(beside, c.step.owns)
	}
	for _, g := range all {
		h, holds := c.has[g.Attempt]
		r := c.request(g.Attempt)
		switch {
		case !holds || h.session != g.Session || h.last != g.Grant.Token || h.first != g.Grant.First:
			return fmt.Errorf("%s is granted %v, and has %+v", g.Attempt, g.Grant, h)
		case g.Grant.First <= c.after.granted:
			return fmt.Errorf("%s is granted %d after %d", g.Attempt, g.Grant.First, c.after.granted)
		case g.Grant.First < c.before.now:
			return fmt.Errorf("%s is granted %d at %d", g.Attempt, g.Grant.First, c.before.now)
		case g.Grant.Token != g.Grant.First+int64(count(r))-1:
			return fmt.Errorf("%s has %d members, and is granted %v", g.Attempt, count(r), g.Grant)
		case !c.before.alive(g.Session):
			return fmt.Errorf("%s is dead, and is granted the name", g.Attempt)
		case c.before.row.Rests > c.before.now && c.step.owns == "":
			return fmt.Errorf("%s is granted the name while it rests", g.Attempt)
		case !fits(r, beside):
			return fmt.Errorf("%s is granted the name, and does not fit", g.Attempt)
		case g.Grant.Contended != (len(c.after.places) > 0):
			return fmt.Errorf("%s is told of waiters: %v, of %d", g.Attempt, g.Grant.Contended, len(c.after.places))
		case (r.Lease > 0) != (h.ends > c.before.now), g.Grant.Lease != r.Lease:
			return fmt.Errorf("%s has a lease until %d: want %v", g.Attempt, h.ends, r.Lease)
		}
		beside[g.Attempt] = h
		c.after.granted = g.Grant.Token
	}
	for attempt, h := range c.has {
		was, had := c.had[attempt]
		granted := slices.ContainsFunc(all, func(g protocol.Handoff) bool { return g.Attempt == attempt })
		if !granted && (!had || h != was) && attempt != c.step.owns {
			return fmt.Errorf("%s has %+v now, without a grant", attempt, h)
		}
		renewed := h.last < was.first || h.last > was.last || h.units < was.units // by an upgrade, or raised
		if had && attempt == c.step.owns && renewed && h.last <= c.before.granted {
			return fmt.Errorf("%s has token %d now, after %d", attempt, h.last, c.before.granted)
		}
		c.after.granted = max(c.after.granted, h.last)
		if had && was.first < was.last && h.first == h.last { // detached: the tokens behind it were given to nobody
			c.after.granted = h.last
		}
	}
	if c.after.row.Token < c.after.granted {
		return fmt.Errorf("the row knows of token %d: %d was granted", c.after.row.Token, c.after.granted)
	}
	return nil
}

// request is what a place, or the step, asks for.
func (c *check) request(attempt string) protocol.Request {
	for _, p := range append(slices.Clone(c.before.places), c.left.PutPlaces...) {
		if p.Attempt == attempt {
			return p.Request
		}
	}
	if c.step.rest != nil && c.step.rest.Attempt == attempt {
		return *c.step.rest
	}
	return *c.step.gets
}

// losses: nobody loses a hold but by what may take it.
func (c *check) losses() error {
	for attempt := range c.had {
		if _, has := c.has[attempt]; has {
			continue
		}
		if attempt != c.step.loses {
			return fmt.Errorf("%s has lost its hold", attempt)
		}
		if c.step.seize && !slices.Contains(c.seized, attempt) {
			return fmt.Errorf("%s has lost its hold, and its guard was not seized", attempt)
		}
	}
	return nil
}

// queue: the places stand in the order in which they joined, and those that wait no more were
// granted the name, gave up, or are dead.
func (c *check) queue() error {
	there := func(attempt string) bool {
		return slices.ContainsFunc(c.after.places, func(p protocol.Place) bool { return p.Attempt == attempt })
	}
	want := slices.DeleteFunc(slices.Clone(c.before.queue), func(attempt string) bool {
		_, granted := c.has[attempt]
		excused := attempt == c.step.loses || !c.before.alive(strings.ToUpper(attempt[:1]))
		return granted || !there(attempt) && excused
	})
	if r := c.step.rest; r != nil && there(r.Attempt) && !slices.Contains(want, r.Attempt) {
		want = append([]string{r.Attempt}, want...)
	}
	if r := c.step.gets; r != nil && there(r.Attempt) {
		want = append(want, r.Attempt)
	}
	var got []string
	for _, p := range c.after.places {
		got = append(got, p.Attempt)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%v wait, want %v", got, want)
	}
	c.after.queue = got
	return nil
}

// growth: a place grows where a request of its session extends it, and nothing stands behind it;
// then the request has no place of its own.
func (c *check) growth(ahead int) error {
	last := len(c.before.places) - 1
	for i, p := range c.before.places {
		at := slices.IndexFunc(c.after.places, func(other protocol.Place) bool { return other.Attempt == p.Attempt })
		if at < 0 {
			continue
		}
		grown := count(c.after.places[at].Request) - count(p.Request)
		if r := c.step.gets; c.step.grows == p.Attempt && i == last && p.Ticket == c.before.row.Next-1 {
			if ahead != count(p.Request) || grown != count(*r) || c.after.places[at].Since != p.Since {
				return fmt.Errorf("%s does not extend %+v: it has %+v", r.Attempt, p, c.after.places[at])
			}
			c.step.gets = nil
		} else if grown != 0 {
			return fmt.Errorf("%+v is %+v now", p, c.after.places[at])
		}
	}
	return nil
}

// order: those that are granted the name come before those that still wait, apart from the dead;
// and when the name was handed over, the first that lives does not fit any more.
func (c *check) order() error {
	granted := 0
	for _, attempt := range c.before.queue {
		lives := c.before.alive(strings.ToUpper(attempt[:1]))
		switch waits := slices.Contains(c.after.queue, attempt); {
		case granted < len(c.left.Handoffs) && c.left.Handoffs[granted].Attempt == attempt:
			granted++
		case waits && lives && granted < len(c.left.Handoffs) && c.step.rest == nil:
			return fmt.Errorf("%s is passed over by %s", attempt, c.left.Handoffs[granted].Attempt)
		}
	}
	changed := len(c.left.GonePlaces) > 0 || !maps.Equal(c.had, c.has)
	if c.step.hands && changed {
		c.after.overdue = false
	}
	r := c.after.row
	if r.Units == 0 && len(c.after.places) == 0 {
		c.after.kind = 0
	}
	for _, p := range c.left.PutPlaces {
		c.state(p.Request)
	}
	for _, s := range c.after.shares {
		c.state(protocol.Request{Units: s.Units, Of: s.Of})
	}
	if c.after.overdue || r.Rests > c.before.now {
		return nil
	}
	for _, p := range c.after.places {
		if !c.after.alive(p.Session) && c.step.hands && changed && r.Session == "" {
			return fmt.Errorf("%s is dead, and is first in the queue", p.Attempt)
		}
		if c.after.alive(p.Session) {
			if fits(p.Request, c.has) {
				return fmt.Errorf("%s fits, and is not granted the name", p.Attempt)
			}
			return nil
		}
	}
	return nil
}

func (c *check) state(r protocol.Request) {
	if k := kindOf(r); k != 0 {
		c.after.kind = k
	}
}

// told: each grant is told to its session, except to the one that asks, and with the token where no
// lease is in it.
func (c *check) told() error {
	for _, g := range c.left.Handoffs {
		i := slices.IndexFunc(c.left.Notices, func(t protocol.Notice) bool {
			return t.Session == g.Session && t.Hint.Attempt == g.Attempt
		})
		switch told := i >= 0; {
		case told == (g.Session == c.step.self):
			return fmt.Errorf("%s is granted the name; told: %v", g.Attempt, told)
		case told && g.Grant.Lease == 0 && c.left.Notices[i].Hint.Grant != g.Grant:
			return fmt.Errorf("%s is told of %v: %v was granted", g.Attempt, c.left.Notices[i].Hint.Grant, g.Grant)
		}
	}
	return nil
}
