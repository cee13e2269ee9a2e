package runtest

import (
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// tables are the tables of dblock, for whole names. Each method is one committed transaction. The
// scheduler alone calls them.
type tables struct {
	rows      map[string]*row
	sessions  map[string]*sessionRow
	journal   *journal
	notify    func(session string, h driver.Hint)
	freeByTx  bool // UnlockTx leaves the name free with its queue, for TakeOver
	exclusive bool // an application's transaction that has written locks everything, as on SQLite
	maybeTake func() bool
	bug       bug
}

// sessionRow is a row of dblock_sessions and its heartbeat.
type sessionRow struct {
	id      string
	host    string
	ttl     time.Duration
	expires time.Time
	dead    bool
	ended   bool // by EndSession
}

// row is a row of dblock_locks, with the places in its queue.
type row struct {
	name        string
	token       int64 // the highest token ever reserved
	first, last int64 // of the holder
	holder      driver.Request
	holds       int
	shared      bool // the holder has made a reader of itself
	since       time.Time
	asked       string
	queue       []place // in the order of their tickets; members of a run come first
	ticket      int64   // of the next place
	locked      *transaction
	guarded     *transaction
}

// place is a row of dblock_waiters.
type place struct {
	driver.Request
	ticket int64
	token  int64 // of a member of a run; 0: it waits
}

func (d *tables) alive(id string) bool {
	s := d.sessions[id]
	return s != nil && !s.dead && time.Now().Before(s.expires)
}

// expire declares a session dead whose time is over, and reports whether it is dead.
func (d *tables) expire(id string) bool {
	s := d.sessions[id]
	if s != nil && !time.Now().Before(s.expires) {
		s.dead = true
	}
	return s == nil || s.dead
}

func (d *tables) openSession(s driver.Session) {
	d.sessions[s.ID] = &sessionRow{id: s.ID, host: s.Host, ttl: s.TTL, expires: time.Now().Add(s.TTL)}
}

func (d *tables) heartbeat(id string, ttl time.Duration) bool {
	s := d.sessions[id]
	if s == nil || s.dead {
		return false
	}
	s.expires = time.Now().Add(ttl)
	return true
}

func (r *row) held() bool { return r.holder.Session != "" }

func (r *row) inRun() bool { return r.first < r.last }

// is reports whether a hold is the row's: of a run, the whole run.
func (r *row) is(h driver.Held) bool {
	return r.held() && r.holder.Session == h.Session && r.last == h.Token && r.shared == h.Shared
}

// give makes a request the holder, with the tokens of its run.
func (d *tables) give(r *row, to driver.Request, first, last int64) {
	r.holder, r.first, r.last, r.token = to, first, last, max(r.token, last)
	r.holds, r.shared, r.asked, r.since = 1, false, "", time.Now()
	if first < last {
		d.journal.ran(r)
	}
}

// nextToken is above all that were ever reserved, and never just the next, as with a clock.
func (d *tables) nextToken(r *row) int64 { return r.token + 2 }

func (d *tables) take(q driver.Request) (driver.Grant, bool, error) {
	if d.sessions[q.Session].dead {
		return driver.Grant{}, false, nil
	}
	r := d.rows[q.Name]
	if r == nil {
		r = &row{name: q.Name, ticket: 1}
		d.rows[q.Name] = r
	}
	if (r.held() || len(r.queue) > 0) && d.bug != takesWhatIsHeld {
		return driver.Grant{}, false, nil
	}
	token := d.nextToken(r)
	d.give(r, q, token, token)
	d.journal.granted(r, q, token, r.ticket)
	return driver.Grant{Token: token}, true, nil
}

func (d *tables) batch(takes []driver.Request, releases []driver.Held) (grants []driver.Grant, released []bool) {
	for _, q := range takes {
		g := driver.Grant{}
		if r := d.rows[q.Name]; r == nil || r.locked == nil {
			g, _, _ = d.take(q)
		}
		grants = append(grants, g)
	}
	for _, h := range releases {
		r := d.rows[h.Name]
		idle := r != nil && r.locked == nil && r.is(h) && len(r.queue) == 0
		if idle {
			d.free(r)
		}
		released = append(released, idle)
	}
	return grants, released
}

func (d *tables) enqueue(rs []driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	r := d.rows[rs[0].Name]
	if r == nil || d.sessions[rs[0].Session].ended {
		return grant, driver.Gone, nil
	}
	outcome = driver.Queued
	if !r.held() && len(r.queue) == 0 {
		if d.sessions[rs[0].Session].dead || !d.maybeTake() {
			return grant, driver.Gone, nil
		}
		grant, _, err = d.take(rs[0])
		grant.Contended = len(rs) > 1
		outcome, rs = driver.Granted, rs[1:]
	}
	for _, q := range rs {
		r.queue = append(r.queue, place{Request: q, ticket: r.ticket})
		r.ticket++
	}
	return grant, outcome, err
}

// free takes the name from its holder, whose run is over with it.
func (d *tables) free(r *row) {
	r.holder, r.holds, r.shared, r.asked = driver.Request{}, 0, false, ""
	r.first, r.last = r.token, r.token
	if d.bug == repeatsTokens {
		r.token -= 2
	}
}

// endRun deletes the places of a run's members, or makes them wait again.
func (r *row) endRun(again bool) {
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool { return p.token > 0 && !again })
	for i := range r.queue {
		r.queue[i].token = 0
	}
}

// handOn gives a free name to its first living waiter, and to those right behind it that may share
// the grant as a run.
func (d *tables) handOn(r *row, self string) (next []driver.Handoff) {
	for !r.held() && len(r.queue) > 0 {
		if d.bug == newestFirst {
			slices.Reverse(r.queue)
		}
		head := r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
		if !d.alive(head.Session) {
			continue
		}
		members := 0
		behind := r.queue[:min(len(r.queue), driver.MaxRun-1)]
		for head.Passable && members < len(behind) && behind[members].Passable && (behind[members].Session == head.Session || d.bug == mixesSessions) {
			members++
		}
		first := d.nextToken(r)
		last := first + int64(members)
		d.give(r, head.Request, first, last)
		d.journal.granted(r, head.Request, first, head.ticket)
		grant := driver.Grant{Token: first, Contended: len(r.queue) > 0}
		if members > 0 {
			grant.Run = driver.Range{First: first, Last: last}
		}
		next = append(next, driver.Handoff{Session: head.Session, Attempt: head.Attempt, Grant: grant})
		for i := range members {
			p := &r.queue[i]
			p.token = first + int64(i) + 1
			d.journal.granted(r, p.Request, p.token, p.ticket)
			grant.Token = p.token
			next = append(next, driver.Handoff{Session: p.Session, Attempt: p.Attempt, Grant: grant})
		}
		if head.Session != self {
			hint := driver.Hint{Attempt: head.Attempt}
			hint.Grant = driver.Grant{Token: first, Contended: next[0].Grant.Contended}
			for _, n := range next[1:] {
				hint.Behind = append(hint.Behind, n.Attempt)
			}
			d.notify(head.Session, hint)
		}
	}
	return next
}

func (d *tables) vacate(v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	r := d.rows[v.Name]
	if r == nil {
		return nil, false, nil
	}
	switch v.Cause {
	case driver.ByHolder:
		if !r.is(v.Held()) {
			return nil, false, nil
		}
		r.endRun(false)
		d.free(r)
	case driver.ByAttempt:
		if d.dropPlaces(r, v.Session, v.Attempt) {
			return d.handOn(r, v.Self), true, nil
		}
		if r.holder.Session != v.Session || r.holder.Attempt != v.Attempt {
			return nil, false, nil
		}
		d.journal.givenBack(r.holder)
		if d.bug == keepsLocks || d.nextMember(r) {
			return nil, true, nil
		}
		d.free(r)
	case driver.ByTime:
		if !d.expire(v.Session) || v.Token == 0 || r.holder.Session != v.Session || r.last != v.Token {
			return nil, false, nil
		}
		if r.guarded != nil {
			return nil, false, driver.ErrBusy
		}
		r.endRun(true)
		d.free(r)
	case driver.ByForce:
		if r.holder.Session != v.Session || r.last != v.Token {
			return nil, false, nil
		}
		if r.guarded != nil {
			return nil, false, driver.ErrBusy
		}
		d.journal.broken(r, v.Event.Detail)
		d.notify(v.Session, driver.Hint{Attempt: r.holder.Attempt})
		r.endRun(true)
		d.free(r)
	}
	next = d.handOn(r, v.Self)
	return next, v.Cause != driver.Nothing || len(next) > 0, nil
}

// nextMember makes the row show the next member of its run; false: there is none.
func (d *tables) nextMember(r *row) bool {
	if !r.inRun() || len(r.queue) == 0 || r.queue[0].token == 0 {
		return false
	}
	p := r.queue[0]
	r.queue = slices.Delete(r.queue, 0, 1)
	r.holder, r.first, r.holds = p.Request, p.token, 1
	return true
}

// dropPlaces gives up places, and reports whether there was one.
func (d *tables) dropPlaces(r *row, session string, attempts ...string) bool {
	before := len(r.queue)
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool {
		gone := p.Session == session && slices.Contains(attempts, p.Attempt)
		if gone {
			d.journal.givenBack(p.Request)
		}
		return gone
	})
	return len(r.queue) < before
}

func (d *tables) leave(session, name string, attempts []string) []driver.Handoff {
	r := d.rows[name]
	if r == nil || !d.dropPlaces(r, session, attempts...) {
		return nil
	}
	return d.handOn(r, session)
}

func (d *tables) settle(h driver.Held, singly bool) error {
	r := d.rows[h.Name]
	switch {
	case r == nil || r.holder.Session != h.Session || r.shared || h.Token < r.first || h.Token > r.last:
		return driver.ErrNotHeld
	case !r.inRun():
		return nil
	}
	if h.Token > r.first {
		i := slices.IndexFunc(r.queue, func(p place) bool { return p.token == h.Token })
		if i < 0 {
			return driver.ErrNotHeld
		}
		r.holder, r.holds, r.since = r.queue[i].Request, 1, time.Now()
	}
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool { return p.token > 0 && p.token <= h.Token })
	for i := range r.queue {
		if p := &r.queue[i]; p.token > 0 {
			p.token = 0
			p.Passable = p.Passable && !singly
		}
	}
	r.first, r.last = h.Token, h.Token
	return nil
}

func (d *tables) hold(h driver.Held) (*row, error) {
	r := d.rows[h.Name]
	if r == nil || !r.is(h) {
		return nil, driver.ErrNotHeld
	}
	return r, nil
}

// inside is hold in an application's transaction.
func (d *tables) inside(h driver.Held) (*row, error) {
	r := d.rows[h.Name]
	if d.exclusive && r != nil && r.holder.Session == h.Session && r.shared == h.Shared && r.first <= h.Token && h.Token <= r.last {
		return r, nil
	}
	return d.hold(h)
}

func (d *tables) setHolds(h driver.Held, holds int) error {
	r, err := d.hold(h)
	if err == nil {
		r.holds = holds
	}
	return err
}

func (d *tables) downgrade(h driver.Held) ([]driver.Handoff, error) {
	r := d.rows[h.Name]
	if r == nil || r.holder.Session != h.Session || r.last != h.Token {
		return nil, driver.ErrNotHeld
	}
	if r.inRun() {
		return nil, driver.ErrNotHeld // only the client knows which member has it
	}
	r.shared = true
	return nil, nil
}

func (d *tables) upgrade(h driver.Held, attempt string) (driver.Grant, bool, error) {
	r := d.rows[h.Name]
	switch {
	case r == nil || r.holder.Session != h.Session || r.holder.Attempt != attempt:
		return driver.Grant{}, false, driver.ErrNotHeld
	case r.shared && r.last != h.Token:
		return driver.Grant{}, false, driver.ErrNotHeld
	case r.shared:
		token := d.nextToken(r)
		r.shared, r.first, r.last, r.token = false, token, token, token
		d.journal.granted(r, r.holder, token, r.ticket)
	}
	return driver.Grant{Token: r.last}, true, nil
}

func (d *tables) raise(h driver.Held, token int64) (int64, error) {
	r := d.rows[h.Name]
	if r == nil || r.holder.Session != h.Session || r.shared || r.last != h.Token && r.last != token {
		return 0, driver.ErrNotHeld
	}
	if token > r.last {
		if r.token > r.last {
			token = max(token, d.nextToken(r))
		}
		r.first, r.last, r.token = token, token, max(r.token, token)
		d.journal.granted(r, r.holder, token, r.ticket)
	}
	return r.last, nil
}

// ask marks what is held with a reason, and returns how many holders there are.
func (d *tables) ask(name, reason string) int {
	r := d.rows[name]
	if r == nil || !r.held() {
		return 0
	}
	r.asked = reason
	d.notify(r.holder.Session, driver.Hint{Attempt: r.holder.Attempt})
	return 1
}

func (d *tables) look(id string, names []string) (states []driver.State) {
	for _, name := range names {
		if r := d.rows[name]; r != nil {
			states = append(states, d.state(r, id))
		}
	}
	return states
}

func (d *tables) state(r *row, id string) driver.State {
	s := driver.State{Name: r.name, Waiters: len(r.queue)}
	if r.held() {
		s.Holder = d.holder(r)
	}
	if r.shared {
		s.Sharing, s.Used, s.Capacity = 1, 1, driver.Readers
		s.Holder.Units = 1
		if len(r.queue) > 0 {
			head := r.queue[0]
			s.Head = driver.Holder{Session: head.Session, Host: head.Host, Thread: head.Thread, Attempt: head.Attempt, Left: d.left(head.Session)}
		}
	}
	s.Ready = !r.held() && len(r.queue) > 0
	run := driver.Range{}
	if r.inRun() {
		run = driver.Range{First: r.first, Last: r.last}
	}
	if r.held() && r.holder.Session == id {
		s.Granted = append(s.Granted, driver.Own{Attempt: r.holder.Attempt, Grant: driver.Grant{Token: r.first, Contended: len(r.queue) > 0, Run: run}})
	}
	for _, p := range r.queue {
		switch {
		case p.Session != id:
		case p.token > 0:
			s.Granted = append(s.Granted, driver.Own{Attempt: p.Attempt, Grant: driver.Grant{Token: p.token, Contended: true, Run: run}})
		default:
			s.Queued = append(s.Queued, p.Attempt)
		}
	}
	return s
}

func (d *tables) left(id string) time.Duration {
	if s := d.sessions[id]; s != nil && !s.dead {
		return time.Until(s.expires)
	}
	return 0
}

func (d *tables) holder(r *row) driver.Holder {
	h := r.holder
	return driver.Holder{
		Session: h.Session, Host: h.Host, Thread: h.Thread, Attempt: h.Attempt,
		Grant: driver.Grant{Token: r.last}, Since: r.since, Left: d.left(h.Session),
	}
}

// claims are a session's, in the order of the names.
func (d *tables) claims(id string) (claims []driver.Claim) {
	for _, name := range names {
		r := d.rows[name]
		if r == nil {
			continue
		}
		if r.holder.Session == id {
			claims = append(claims, driver.Claim{Name: name, Attempt: r.holder.Attempt, Token: r.last, Asked: r.asked})
		}
		for _, p := range r.queue {
			if p.Session == id {
				claims = append(claims, driver.Claim{Name: name, Attempt: p.Attempt, Token: p.token})
			}
		}
	}
	return claims
}

func (d *tables) describe(name string) []driver.Detail {
	r := d.rows[name]
	if r == nil {
		return nil
	}
	detail := driver.Detail{Name: name, Token: r.token}
	if r.held() {
		detail.Holders = []driver.Party{{Holder: d.holder(r), Holds: r.holds}}
	}
	return []driver.Detail{detail}
}
