package protocol

// Ask marks every hold of the name with a reason, tells the holders' sessions, the asking session
// too, and records the event. It returns the number of holders. Without a holder it records
// nothing.
func Ask(n *Name, reason string, e Event) (holders int, err error) {
	if n.held() {
		n.Asked = reason
		n.tell(n.Session, Hint{Attempt: n.Attempt})
		holders++
	}
	if n.Units > 0 {
		shares, err := n.source.Shares()
		if err != nil {
			return 0, err
		}
		for _, s := range shares {
			s.Asked = reason
			n.PutShares = append(n.PutShares, s)
			n.tell(s.Session, Hint{Attempt: s.Attempt})
			holders++
		}
	}
	if holders > 0 {
		n.record(e)
	}
	return holders, nil
}

// EndRest ends the cool-down (MinHold) of a name, held or not, and records the event. With a token
// it does so only if the name was last granted as a whole with this one. Without a cool-down it
// returns false and records nothing. It grants nothing: Remove with the cause Nothing does.
func EndRest(n *Name, token int64, e Event) bool {
	if !n.resting() || token != 0 && token != n.Last {
		return false
	}
	n.Rests = 0
	n.record(e)
	return true
}

// Announce records an event if the lock is held, and notifies those who watch the name. ErrNotHeld.
func Announce(n *Name, h Held, e Event) error {
	found, held, err := n.find(h.Session, h.Token, "")
	if err != nil || !held || h.Shared != (found.share != nil) {
		return notHeld(err)
	}
	n.record(e)
	n.Stirred = true
	return nil
}

// record leaves an event to be written. One without a kind is none.
func (n *Name) record(e Event) {
	if e.Kind != "" {
		n.Events = append(n.Events, e)
	}
}
