package protocol

// Move gives the whole name to another session: a lock is detached from its client, or goes back.
// The token stays. The attempt is that of the new session. The guard of the old attempt is seized,
// so that no transaction of the old session ends beside the work of the new one. The first waiter
// is told, since the lock ends at another time now. Move is safe to repeat. ErrNotHeld, also where
// the old session has expired: the next waiter may have been told so. ErrNotHeld also of a cohort,
// which is detached first. ErrGuarded while a guarded transaction is open.
type Move struct {
	Held
	To   Request
	Self string // the session that asks: that of Held, or of To
}

// By is as of Op.
func (m Move) By() string { return m.Self }

// Run is as of Op.
func (m Move) Run(n *Name) (Result, error) {
	switch {
	case n.holds(m.To.Session, m.Token) && n.Attempt == m.To.Attempt:
		return Result{Outcome: Done}, nil
	case !n.holds(m.Session, m.Token) || n.First < n.Last:
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
		if err := n.forewarn(); err != nil {
			return Result{}, err
		}
	}
	return Result{Outcome: Done}, nil
}
