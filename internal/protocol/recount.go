package protocol

// Recount has the row of a name say what its places and shares add up to, and hands over. It
// reports whether the row said something else. The transitions keep the row right: this is for
// what a server has left out of one, and for rows that were changed by hand.
func Recount(n *Name, self string) (wrong bool, err error) {
	t, err := n.source.Tally()
	if err != nil {
		return false, err
	}
	n.Waiters, n.Units = t.Waiters, t.Units
	if t.Waiters > 0 {
		n.Head, n.Next = min(n.Head, t.First), max(n.Next, t.Last+1)
	}
	if n.Mixed = t.Smallest < t.Largest; t.Units > 0 {
		n.Capacity = t.Smallest
	}
	if !n.Changed() {
		return false, nil
	}
	_, err = n.handOver(self)
	return true, err
}
