package protocol

// handOver grants the free part of a name to the places in the order of tickets, as far as they
// fit, and reports whether that changed anything. It removes dead places, up to the first living
// place that does not fit. It passes over no living place.
func (n *Name) handOver(self string) (changed bool, err error) {
	switch {
	case n.held() || n.Waiters == 0:
		return false, nil
	case n.resting():
		return false, n.notifyHead()
	}
	first, exhausted := len(n.Handoffs), true
	timed := false // a grant has a lease or a rest: the waiters behind must learn when to look
	for p, err := range n.queue() {
		if err != nil {
			return false, err
		}
		if p.Alive && !n.Fits(p.Units, p.Of) {
			exhausted = false
			break
		}
		changed = true
		n.leave(p)
		n.Head = p.Ticket + 1
		if p.Alive {
			n.Handoffs = append(n.Handoffs, Handoff{p.Session, p.Attempt, n.grant(p.Request)})
			timed = timed || p.Lease > 0 || p.MinHold > 0
		}
		if exhausted = !n.held(); !exhausted {
			break
		}
	}
	if exhausted && n.Waiters > 0 {
		if err := n.emptied(); err != nil {
			return false, err
		}
		changed = true
	}
	n.notifyGranted(n.Handoffs[first:], self)
	if timed && n.Waiters > 0 {
		err = n.notifyHead()
	}
	return changed, err
}

// emptied sets the number of waiters to 0, where the queue was read to its end and the row still
// counts waiters: places were deleted by hand. It confirms the end of the queue by Tally, because
// the server may have cut the list of places short.
func (n *Name) emptied() error {
	t, err := n.source.Tally() // without the changes of this transition
	if err != nil {
		return err
	}
	for _, p := range n.GonePlaces {
		t.Waiters -= p.members()
	}
	if t.Waiters > 0 {
		return ErrRetry
	}
	n.Waiters = 0
	return nil
}

// notifyGranted notifies the sessions of grants, except the session that asks, which is answered.
func (n *Name) notifyGranted(granted []Handoff, self string) {
	for i := range granted {
		h := &granted[i]
		h.Grant.Contended = n.Waiters > 0
		if h.Session == self {
			continue
		}
		hint := Hint{Attempt: h.Attempt}
		if h.Grant.Lease == 0 {
			hint.Grant = h.Grant
		}
		n.notify(h.Session, hint)
	}
}

// notifyHead notifies the first living waiter, which then reads when to look again: at the end of a
// rest, or of a lease.
func (n *Name) notifyHead() error {
	for p, err := range n.queue() {
		if err != nil {
			return err
		}
		if p.Alive {
			n.notify(p.Session, Hint{Attempt: p.Attempt})
			return nil
		}
	}
	return nil
}
