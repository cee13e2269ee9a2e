package runtest

import (
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// tables are the tables of dblock in memory. Each method is one committed transaction. The
// scheduler alone calls them.
type tables struct {
	*memory.DB
	link      *memory.Link
	ended     map[string]bool                  // the sessions that EndSession has ended
	locked    map[string]*transaction          // by name: the one that has locked its row
	guards    map[string]map[*transaction]bool // by attempt: the open ones that guard its hold
	seized    map[string]bool                  // by attempt: no guard of its hold begins any more
	journal   *journal
	notify    func(session string, h protocol.Hint)
	freeByTx  bool // UnlockTx leaves the name free with its queue, for TakeOver
	exclusive bool // an application's transaction that has written locks everything, as on SQLite
	bug       bug
}

func newTables() *tables {
	d := &tables{
		DB: memory.NewDB(), ended: map[string]bool{}, locked: map[string]*transaction{},
		guards: map[string]map[*transaction]bool{}, seized: map[string]bool{},
	}
	d.link = memory.NewLink(d.DB)
	d.Locks.Now, d.Locks.Seize = func() int64 { return 0 }, d.seize
	return d
}

// seize locks the guard of a hold.
func (d *tables) seize(attempt string, _ bool) error {
	if len(d.guards[attempt]) > 0 && d.bug != ignoresGuards {
		return driver.Fail(driver.ErrBusy, driver.ErrGuarded)
	}
	d.seized[attempt] = true
	return nil
}

// endSession keeps the row, for the journal.
func (d *tables) endSession(id string) {
	if s := d.SessionRows[id]; s != nil {
		s.Dead, d.ended[id] = true, true
	}
}

// busy reports whether an application's transaction has locked a name's row.
func (d *tables) busy(name string) bool {
	return name != "" && (d.locked[name] != nil || d.exclusive && len(d.locked) > 0)
}

// run runs ops as one transaction. Of several it passes over names that are locked.
func (d *tables) run(ops []protocol.Op) ([]protocol.Result, error) {
	if sequence, is := ops[0].(protocol.Sequence); is {
		result, err := d.sequence(sequence)
		return []protocol.Result{result}, err
	}
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

var errTried = errors.New("no op was refused")

// sequence runs ops of one name one by one, unless one of them is refused.
func (d *tables) sequence(ops protocol.Sequence) (result protocol.Result, err error) {
	_, _, err = d.Locks.Apply(drivertest.Func{Name: ops.On(), Do: func(n *protocol.Name) error {
		for _, op := range ops {
			if join, joins := op.(protocol.Join); joins && d.ended[join.Session] {
				return driver.ErrRetry
			}
		}
		if _, err := ops.Apply(n); err != nil {
			return err
		}
		return errTried
	}})
	if err != errTried {
		return protocol.Result{}, err
	}
	result.Outcome = protocol.Done
	for _, op := range ops {
		one, err := d.step(op)
		if err != nil {
			d.journal.world.fail("%T is refused after it was tried: %v", op, err)
		}
		result.Each, result.Next = append(result.Each, one), append(result.Next, one.Next...)
	}
	return result, nil
}

// step runs one op, with the bug that is chosen.
func (d *tables) step(op protocol.Op) (protocol.Result, error) {
	switch is := op.(type) {
	case protocol.Take:
		if d.SessionRows[is.Session].Dead { // what a session asks for that EndSession has ended
			return protocol.Result{}, nil
		}
	case protocol.Removal:
		if d.bug == keepsLocks && is.Cause == protocol.ByAttempt {
			return protocol.Result{Outcome: protocol.Done}, nil
		}
	}
	before, _ := d.Locks.Row(op.On())
	var row protocol.Row
	result, changes, err := d.Locks.Apply(noted{op, d, &row})
	if err != nil {
		return protocol.Result{}, err
	}
	d.journal.changed(before, row, changes)
	for _, t := range changes.Notices {
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

func (x noted) Apply(n *protocol.Name) (protocol.Result, error) {
	before := n.Row
	switch op := x.Op.(type) {
	case protocol.Take:
		if x.d.bug == takesWhatIsHeld {
			n.Session, n.Waiters = "", 0
		}
	case protocol.Join:
		if x.d.ended[op.Session] { // what it has is given back, and no more is added
			return protocol.Result{}, driver.ErrRetry
		}
	case protocol.Move:
		switch resumes := op.Self == op.To.Session; {
		case resumes && x.d.bug == resumesTwice:
			op.Session, op.Attempt = n.Session, n.Attempt
		case resumes && x.d.bug == resumesLate && n.Session == op.Session:
			n.Session, op.Session = op.To.Session, op.To.Session
		}
		x.Op = op
	}
	result, err := x.Op.Apply(n)
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

// held is the attempt of a hold.
func (d *tables) held(h protocol.Held) (attempt string, err error) {
	for _, has := range d.Holders(h.Name) {
		if has.Session == h.Session && has.Token == h.Token && h.Shared == (has.Units > 0) {
			return has.Attempt, nil
		}
	}
	return "", driver.ErrNotHeld
}
