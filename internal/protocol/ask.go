package protocol

// Ask marks every hold of the name with a reason, notifies the holders' sessions, the asking
// session included, and records the event. Result.Holders is the number of holders. Undone without
// a holder.
type Ask struct {
	Name   string
	Reason string
	Event  Event
}

// On implements Op.
func (a Ask) On() string { return a.Name }

// By returns "": the asking session is notified like any other.
func (a Ask) By() string { return "" }

// Apply implements Op.
func (a Ask) Apply(n *Name) (Result, error) {
	holders := 0
	if n.held() {
		n.Asked = a.Reason
		n.notify(n.Session, Hint{Attempt: n.Attempt})
		holders++
	}
	if n.Units > 0 {
		shares, err := n.shares()
		if err != nil {
			return Result{}, err
		}
		for _, s := range shares {
			s.Asked = a.Reason
			n.set(s)
			n.notify(s.Session, Hint{Attempt: s.Attempt})
			holders++
		}
	}
	if holders == 0 {
		return Result{}, nil
	}
	n.record(a.Event)
	return Result{Outcome: Done, Holders: holders}, nil
}

// unshown is in place of the reason of an Ask while the client of a cohort is asked to Detach the
// member that has the name.
const unshown = "\x01"

// Reason returns the reason of the latest Ask, of what a row says in its place; "": there was none.
func Reason(asked string) string {
	if asked == unshown {
		return ""
	}
	return asked
}

// Show asks the client of a cohort which member has the name: it notifies the session, which
// answers with a Detach. An Ask does so, too. Undone where the name has no holder with this last
// Token, or a holder that is no cohort.
type Show struct {
	Name  string
	Token int64
}

// On implements Op.
func (s Show) On() string { return s.Name }

// By returns "": the asking session is notified like any other.
func (s Show) By() string { return "" }

// Apply implements Op.
func (s Show) Apply(n *Name) (Result, error) {
	if !n.held() || n.Last != s.Token || n.First == n.Last {
		return Result{}, nil
	}
	if n.Asked == "" {
		n.Asked = unshown
	}
	n.notify(n.Session, Hint{Attempt: n.Attempt})
	return Result{Outcome: Done}, nil
}

// EndRest ends the cool-down (MinHold) of a name, held or not, records the event, and notifies the
// watchers of the name. With a Token it does so only if the latest grant of the whole name has this
// token. Undone without a cool-down. EndRest grants nothing: a Removal with the cause Nothing does.
type EndRest struct {
	Name  string
	Token int64
	Event Event
}

// On implements Op.
func (e EndRest) On() string { return e.Name }

// By returns "": EndRest grants nothing.
func (e EndRest) By() string { return "" }

// Apply implements Op.
func (e EndRest) Apply(n *Name) (Result, error) {
	if !n.resting() || e.Token != 0 && e.Token != n.Last {
		return Result{}, nil
	}
	n.Rests, n.WakesWatchers = 0, true
	n.record(e.Event)
	return Result{Outcome: Done}, nil
}

// Announce records an event if the lock is held, and notifies the watchers of the name. ErrNotHeld.
type Announce struct {
	Held
	Event Event
}

// Apply implements Op.
func (a Announce) Apply(n *Name) (Result, error) {
	found, held, err := n.find(a.Session, a.Token, "")
	if err != nil || !held || a.Shared != (found.share != nil) {
		return Result{}, notHeld(err)
	}
	n.record(a.Event)
	n.WakesWatchers = true
	return Result{Outcome: Done}, nil
}

// record adds an event to the changes. An event without a kind is ignored.
func (n *Name) record(e Event) {
	if e.Kind != "" {
		n.Events = append(n.Events, e)
	}
}
