package protocol

// Move gives the whole name to another session: a lock is detached from its client, or goes back.
// The token stays. The attempt is that of the new session. The guard of the old attempt is seized,
// so that no transaction of the old session ends beside the work of the new one. The first waiter
// is told, since the lock ends at another time now. It is safe to repeat. ErrNotHeld, also where
// the old session is over its time: the next waiter may have been told so. ErrNotHeld also of a
// cohort, which is detached first. ErrGuarded while a guarded transaction is open.
func Move(n *Name, h Held, to Request) error {
	switch {
	case n.holds(to.Session, h.Token) && n.Attempt == to.Attempt:
		return nil
	case !n.holds(h.Session, h.Token) || n.First < n.Last:
		return ErrNotHeld
	}
	if err := n.source.Seize(n.Attempt, false); err != nil {
		return err
	}
	if dead, err := n.source.Expire(h.Session); err != nil || dead {
		return notHeld(err)
	}
	n.Session, n.Host, n.Thread, n.Attempt = to.Session, to.Host, to.Thread, to.Attempt
	if n.Waiters == 0 {
		return nil
	}
	return n.forewarn()
}
