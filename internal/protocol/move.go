package protocol

// Move transfers an Attempt's lock to the session and the attempt of To: Detach, and Resume. The
// token does not change, so Move compares the attempt too: after Detach and Resume the same token
// belongs to a new attempt. Move seizes the guard of the old attempt, so that no transaction that
// the old session guards commits during the work of the new one. Move notifies the first waiter,
// since the end of the lock moves. Move is safe to repeat.
//
// ErrNotHeld if the attempt does not hold the lock, if the old session has expired (the next waiter
// may have read that), or if a cohort of several holds it: Detach ends the cohort first. ErrGuarded
// while a guarded transaction is open.
type Move struct {
	Held
	Attempt string
	To      Request
	Self    string // the session that sends Move: that of Held, or of To
}

// By implements Op.
func (m Move) By() string { return m.Self }

// Apply implements Op.
func (m Move) Apply(n *Name) (Result, error) {
	switch {
	case n.holds(m.To.Session, m.Token) && n.Attempt == m.To.Attempt:
		return Result{Outcome: Done}, nil
	case !n.holds(m.Session, m.Token) || n.Attempt != m.Attempt || n.First < n.Last:
		return Result{}, ErrNotHeld
	}
	if err := n.source.Seize(n.Attempt, false); err != nil {
		return Result{}, err
	}
	if dead, err := n.source.Expire(m.Session); err != nil || dead {
		return Result{}, notHeld(err)
	}
	n.Session, n.Host, n.Thread, n.Attempt = m.To.Session, m.To.Host, m.To.Thread, m.To.Attempt
	if n.Waiters > 0 {
		if err := n.notifyHead(); err != nil {
			return Result{}, err
		}
	}
	return Result{Outcome: Done}, nil
}
