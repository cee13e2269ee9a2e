package protocol

// Move gives the whole name to another session, and the owner in it. The hold goes on, with its
// attempt and its token: so its guard is not seized, and protects what it has protected. It is safe
// to repeat. ErrNotHeld, also where the session that has it is over its time, for then the next
// waiter may have been told so; and of a cohort, which is detached first.
func Move(n *Name, h Held, to Request) error {
	if n.holds(to.Session, h.Token) && n.Attempt == to.Attempt {
		return nil
	}
	if !n.holds(h.Session, h.Token) || n.Attempt != to.Attempt || n.First < n.Last {
		return ErrNotHeld
	}
	dead, err := n.source.Expire(h.Session)
	if err != nil || dead {
		return notHeld(err)
	}
	n.Session, n.Host, n.Thread = to.Session, to.Host, to.Thread
	return nil
}
