package protocol

// Cause is the reason why a hold or a place leaves a name.
type Cause int

const (
	ByHolder  Cause = iota // its holder releases it, by its token
	ByAttempt              // its attempt is undone, whether that has a place in the queue or the lock
	ByTime                 // its session is dead or has expired, or its fixed lease has expired
	ByForce                // an operator takes it away
	Nothing                // nothing leaves: the name is ready to be handed over
)

// Removal removes a hold or a place from a name, as its Cause says. Release, Undo, TakeOver and
// Break make one. Removal then hands over. Undone where there was nothing to remove, or with the
// cause Nothing where the queue stayed as it was. A cohort leaves whole, by its last token. ErrBusy
// where a transaction guards the hold that would leave.
type Removal struct {
	Cause     Cause
	Name      string
	Session   string // of the hold or the place
	Attempt   string
	Token     int64  // of a lock; 0: a place in the queue, or, ByAttempt, place or lock
	Shared    bool   // ByHolder: it is a share
	Contended bool   // ByHolder: others may wait; false: an engine may take its short way for a name without waiters
	Guarded   bool   // ByHolder, ByAttempt: it was guarded, and leaves only once its guarded transactions have ended
	LeaseOver bool   // ByTime: its fixed lease has expired, and its session may be alive
	Self      string // the session that asks: a grant to it needs no notification
	Event     Event  // ByForce: recorded in the same transaction
}

// Release returns the removal of a lock that its holder releases.
func Release(h Held, contended, guarded bool) Removal {
	return Removal{
		Cause: ByHolder, Name: h.Name, Session: h.Session, Token: h.Token, Shared: h.Shared,
		Contended: contended, Guarded: guarded, Self: h.Session,
	}
}

// Undo returns the removal of an attempt that is given up, in every outcome. An attempt without a
// trace is no error.
func Undo(session, name, attempt string) Removal {
	return Removal{Cause: ByAttempt, Name: name, Session: session, Attempt: attempt, Self: session}
}

// TakeOver returns the removal of an expired holder, or of an expired place in the queue, as the
// caller has read it. The removal expires the session first where that is due. If the name has
// another holder by now, or neither the session nor the fixed lease of the holder has expired,
// nothing leaves. With the zero Holder nothing leaves, and the name is handed over.
func TakeOver(self, name string, h Holder) Removal {
	r := Removal{
		Cause: ByTime, Name: name, Session: h.Session, Attempt: h.Attempt, Token: h.Grant.Token,
		LeaseOver: h.Grant.Lease < 0, Self: self,
	}
	if h.Session == "" {
		r.Cause = Nothing
	}
	return r
}

// Break returns the removal of a holder or a place, alive or not. It notifies the old holder, and
// the watchers of the name. Where a transaction guards the hold, no new guard of it begins for two
// seconds.
func Break(self, name string, h Holder, e Event) Removal {
	return Removal{
		Cause: ByForce, Name: name, Session: h.Session, Attempt: h.Attempt, Token: h.Grant.Token, Self: self, Event: e,
	}
}

// Held returns the lock that leaves.
func (r Removal) Held() Held { return Held{r.Name, r.Session, r.Token, r.Shared} }

// hold is the whole name, or a share, in the hands of a holder.
type hold struct {
	attempt string
	ends    int64 // of its fixed lease; 0: it has none
	share   *Share
}

// find finds a hold by its token, or with token 0 by its attempt; without both there is none. It
// reads the row of a share even if the name's row counts none.
func (n *Name) find(session string, token int64, attempt string) (hold, bool, error) {
	if token == 0 && attempt == "" {
		return hold{}, false, nil
	}
	if token == 0 && n.held() && n.Session == session && n.Attempt == attempt || token != 0 && n.holds(session, token) {
		return hold{attempt: n.Attempt, ends: n.Ends}, true, nil
	}
	s, found, err := Share{}, false, error(nil)
	if token != 0 {
		s, found, err = n.share(session, token)
	} else {
		s, found, err = n.shareOf(session, attempt)
	}
	return hold{attempt: s.Attempt, ends: s.Ends, share: &s}, found, err
}

// remove removes a hold from the name.
func (n *Name) remove(h hold) error {
	if h.share != nil {
		return n.drop(*h.share)
	}
	n.free()
	return nil
}

// On implements Op.
func (r Removal) On() string { return r.Name }

// By implements Op.
func (r Removal) By() string { return r.Self }

// Apply implements Op.
func (r Removal) Apply(n *Name) (Result, error) {
	var left bool
	var err error
	switch r.Cause {
	case ByHolder:
		left, err = n.release(r)
	case ByAttempt:
		left, err = n.undo(r)
	case ByTime:
		left, err = n.expire(r)
	case ByForce:
		left, err = n.breakUp(r)
	case Nothing:
		return n.done(n.handOver(r.Self))
	}
	if err == nil && left {
		_, err = n.handOver(r.Self)
	}
	return n.done(left, err)
}

func (n *Name) release(r Removal) (bool, error) {
	h, held, err := n.find(r.Session, r.Token, "")
	if err != nil || !held || r.Token == 0 || r.Shared != (h.share != nil) {
		return false, err
	}
	return n.giveUp(h, r.Guarded)
}

// giveUp removes a hold that its holder gives up. ErrGuarded while a transaction that guards it is
// open.
func (n *Name) giveUp(h hold, guarded bool) (bool, error) {
	if guarded {
		if err := n.source.Seize(h.attempt, false); err != nil {
			return false, err
		}
	}
	return true, n.remove(h)
}

func (n *Name) undo(r Removal) (bool, error) {
	if left, err := n.vacate(r); left || err != nil {
		return left, err
	}
	h, held, err := n.find(r.Session, 0, r.Attempt)
	if err != nil || !held {
		return false, err
	}
	return n.giveUp(h, r.Guarded)
}

// vacate removes the place of an attempt.
func (n *Name) vacate(r Removal) (bool, error) {
	p, waits, err := n.place(r.Session, r.Attempt)
	if err == nil && waits {
		n.leave(p)
	}
	return waits && err == nil, err
}

func (n *Name) expire(r Removal) (bool, error) {
	dead, err := n.source.Expire(r.Session)
	if err != nil {
		return false, err
	}
	if r.Token == 0 {
		if !dead {
			return false, nil
		}
		return n.vacate(r)
	}
	h, held, err := n.find(r.Session, r.Token, "")
	if err != nil || !held || !dead && (h.ends == 0 || h.ends > n.Now) {
		return false, err
	}
	if err := n.source.Seize(h.attempt, false); err != nil {
		return false, err
	}
	return true, n.remove(h)
}

func (n *Name) breakUp(r Removal) (left bool, err error) {
	attempt := r.Attempt
	if r.Token == 0 {
		left, err = n.vacate(r)
	} else {
		var h hold
		if h, left, err = n.find(r.Session, r.Token, ""); err != nil || !left {
			return false, err
		}
		if err := n.source.Seize(h.attempt, true); err != nil {
			return false, err
		}
		attempt = h.attempt
		err = n.remove(h)
	}
	if left && err == nil {
		n.notify(r.Session, Hint{Attempt: attempt})
		n.record(r.Event)
		n.WakesWatchers = true
	}
	return left, err
}
