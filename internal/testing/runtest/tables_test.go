package runtest

import (
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
)

// tables are the tables of dblock in memory. Each method is one committed transaction. The
// scheduler alone calls them.
type tables struct {
	memory.Names
	sessions  map[string]*sessionRow
	locked    map[string]*transaction          // by name: the one that has locked its row
	guards    map[string]map[*transaction]bool // by attempt: the open ones that guard its hold
	seized    map[string]bool                  // by attempt: no guard of its hold begins any more
	journal   *journal
	notify    func(session string, h driver.Hint)
	freeByTx  bool // UnlockTx leaves the name free with its queue, for TakeOver
	exclusive bool // an application's transaction that has written locks everything, as on SQLite
	bug       bug
}

// sessionRow is a row of dblock_sessions and its heartbeat.
type sessionRow struct {
	id      string
	host    string
	expires time.Time
	dead    bool
	ended   bool // by EndSession
}

func newTables() *tables {
	d := &tables{
		sessions: map[string]*sessionRow{}, locked: map[string]*transaction{},
		guards: map[string]map[*transaction]bool{}, seized: map[string]bool{},
	}
	d.Names = memory.Names{Now: func() int64 { return 0 }, Alive: d.alive, Expire: d.expire, Seize: d.seize}
	return d
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

// seize locks the guard of a hold.
func (d *tables) seize(attempt string, _ bool) error {
	if len(d.guards[attempt]) > 0 && d.bug != ignoresGuards {
		return driver.Fail(driver.ErrBusy, driver.ErrGuarded)
	}
	d.seized[attempt] = true
	return nil
}

func (d *tables) openSession(s driver.Session) {
	d.sessions[s.ID] = &sessionRow{id: s.ID, host: s.Host, expires: time.Now().Add(s.TTL)}
}

func (d *tables) heartbeat(id string, ttl time.Duration) bool {
	s := d.sessions[id]
	if s == nil || s.dead {
		return false
	}
	s.expires = time.Now().Add(ttl)
	return true
}

// busy reports whether an application's transaction has locked a name's row.
func (d *tables) busy(name string) bool {
	return name != "" && (d.locked[name] != nil || d.exclusive && len(d.locked) > 0)
}

// run runs ops as one transaction. Of several it passes over names that are locked.
func (d *tables) run(ops []protocol.Op) ([]protocol.Result, error) {
	results := make([]protocol.Result, len(ops))
	for i, op := range protocol.Together(ops) {
		if len(ops) > 1 && d.busy(op.On()) {
			continue
		}
		result, err := d.step(op)
		if err != nil && len(ops) == 1 {
			return nil, err
		}
		results[i] = result
	}
	return results, nil
}

// step runs one op, with the bug that is chosen.
func (d *tables) step(op protocol.Op) (protocol.Result, error) {
	switch is := op.(type) {
	case protocol.Take:
		if d.over(is.Session) {
			return protocol.Result{}, nil
		}
	case protocol.Join:
		if d.bug == miscountsMembers && is.Members > 1 {
			is.Members--
			op = is
		}
	case protocol.Removal:
		if d.bug == keepsLocks && is.Cause == driver.ByAttempt {
			return protocol.Result{Outcome: protocol.Done}, nil
		}
	}
	before, _ := d.Row(op.On())
	var row protocol.Row
	result, changes, err := d.Run(noted{op, d, &row})
	if err != nil {
		return protocol.Result{}, err
	}
	d.journal.changed(before, row, changes)
	for _, t := range changes.Told {
		d.notify(t.Session, t.Hint)
	}
	return result, nil
}

// noted is an op with the bug that is chosen, which tells of its removal, and of the row that it
// leaves.
type noted struct {
	protocol.Op
	d   *tables
	row *protocol.Row
}

func (x noted) Run(n *protocol.Name) (protocol.Result, error) {
	before := n.Row
	switch op := x.Op.(type) {
	case protocol.Take:
		if x.d.bug == takesWhatIsHeld {
			n.Session, n.Waiters = "", 0
		}
	case protocol.Join:
		if x.d.sessions[op.Session].ended { // what it has is given back, and no more is added
			return protocol.Result{}, driver.ErrRetry
		}
	}
	result, err := x.Op.Run(n)
	r, removes := x.Op.(protocol.Removal)
	if idle, is := x.Op.(protocol.Idle); is {
		r, removes = idle.Removal, true
	}
	if removes && result.Done() {
		x.d.journal.removed(n, r, before.Attempt)
	}
	if x.d.bug == newestFirst {
		for i := range n.PutPlaces {
			n.PutPlaces[i].Ticket *= -1
			n.Head = min(n.Head, n.PutPlaces[i].Ticket)
		}
	}
	if x.d.bug == repeatsTokens && n.Session == "" && before.Session != "" {
		n.Token--
	}
	*x.row = n.Row
	return result, err
}

// over refuses what a session asks for that EndSession has ended.
func (d *tables) over(session string) bool { return d.sessions[session].dead }

// held is the attempt of a hold.
func (d *tables) held(h driver.Held) (attempt string, err error) {
	row, _ := d.Row(h.Name)
	if row.Session == h.Session && row.Last == h.Token && !h.Shared {
		return row.Attempt, nil
	}
	for _, s := range d.Shares(h.Name) {
		if s.Session == h.Session && s.Token == h.Token && h.Shared {
			return s.Attempt, nil
		}
	}
	return "", driver.ErrNotHeld
}

func (d *tables) look(id string, names []string) (states []driver.State) {
	for _, name := range names {
		if row, there := d.Row(name); there {
			states = append(states, d.state(row, id))
		}
	}
	return states
}

func (d *tables) state(row protocol.Row, id string) driver.State {
	s := driver.State{Name: row.Name, Token: row.Token, Waiters: row.Waiters, Used: row.Units, Capacity: row.Capacity}
	for _, h := range d.holders(row) {
		s.Holders = append(s.Holders, driver.Participant{Holder: h})
		if s.Holder.Session == "" || h.Left < s.Holder.Left {
			s.Holder = h
		}
		if h.Units > 0 {
			s.Sharing++
		}
		if h.Session == id {
			s.Granted = append(s.Granted, driver.OwnGrant{Attempt: h.Attempt, Grant: h.Grant})
		}
	}
	places := d.Places(row.Name)
	for _, p := range places {
		if p.Session == id {
			s.Queued = append(s.Queued, p.Attempt)
		}
	}
	if len(places) > 0 && row.Session == "" {
		head := places[0]
		if s.Sharing > 0 {
			s.Head = driver.Holder{Session: head.Session, Host: head.Host, Thread: head.Thread, Attempt: head.Attempt,
				Left: d.left(head.Session)}
		}
		s.Ready = row.Fits(head.Units, head.Of)
	}
	return s
}

func (d *tables) left(id string) time.Duration {
	if s := d.sessions[id]; s != nil && !s.dead {
		return time.Until(s.expires)
	}
	return 0
}

// holders are those of a name.
func (d *tables) holders(row protocol.Row) (holders []driver.Holder) {
	if row.Session != "" {
		holders = append(holders, driver.Holder{
			Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
			Grant: driver.Grant{First: row.First, Token: row.Last, Contended: row.Waiters > 0},
			Left:  d.left(row.Session),
		})
	}
	for _, s := range d.Shares(row.Name) {
		holders = append(holders, driver.Holder{
			Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt, Units: s.Units,
			Grant: driver.Grant{First: s.Token, Token: s.Token, Contended: row.Waiters > 0}, Left: d.left(s.Session),
		})
	}
	return holders
}

// claims are a session's, in the order of the names.
func (d *tables) claims(id string) (claims []driver.Claim) {
	for _, name := range names {
		row, _ := d.Row(name)
		for _, h := range d.holders(row) {
			if h.Session == id {
				claims = append(claims, driver.Claim{
					Name: name, Attempt: h.Attempt, Token: h.Grant.Token, Asked: row.Asked,
				})
			}
		}
		for _, p := range d.Places(name) {
			if p.Session == id {
				claims = append(claims, driver.Claim{Name: name, Attempt: p.Attempt})
			}
		}
	}
	return claims
}
