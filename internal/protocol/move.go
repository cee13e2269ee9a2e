package protocol

// Move transfers an Attempt's lock to another session: a lock is detached from its client, or goes
// back. The token does not change, so Move compares the attempt too: after Detach and Resume the
// same token belongs to a new attempt. The new attempt is that of To. Move seizes the guard of the
// old attempt, so that no transaction of the old session ends beside the work of the new one. It
// notifies the first waiter, since the end of the lock moves. Move is safe to repeat. ErrNotHeld,
// also where the old session has expired: the next waiter may have read so. ErrNotHeld also of a
// cohort, which is detached first. ErrGuarded while a guarded transaction is open.
type Move struct {
	Held
	Attempt string
	To      Request
	Self    string // the session that asks: that of Held, or of To
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
