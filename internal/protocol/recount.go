package protocol

// Recount corrects the counts in the row of a name by its places and shares, and hands over. Undone
// where the row was right. The transitions keep the row right: Recount is for rows that a server
// has written in part, and for rows that were changed by hand.
type Recount struct{ Name string }

// On implements Op.
func (r Recount) On() string { return r.Name }

// By returns "": a reaper has no session.
func (r Recount) By() string { return "" }

// Apply implements Op.
func (r Recount) Apply(n *Name) (Result, error) {
	t, err := n.source.Tally()
	if err != nil {
		return Result{}, err
	}
	n.Waiters, n.Units = t.Waiters, t.Units
	if t.Waiters > 0 {
		n.Head, n.Next = min(n.Head, t.First), max(n.Next, t.Last+1)
	}
	if n.Mixed = t.Smallest < t.Largest; t.Units > 0 {
		n.Capacity = t.Smallest
	}
	if !n.Changed() {
		return Result{}, nil
	}
	_, err = n.handOver("")
	return n.done(true, err)
}
