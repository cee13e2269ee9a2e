package protocol

import "fmt"

// Take takes the lock if the name has room for the request, no waiters, and does not rest. Undone
// otherwise, and for permits of a name that is read, and the other way round.
type Take struct{ Request }

// Apply implements Op.
func (t Take) Apply(n *Name) (Result, error) {
	if !n.Free(t.Units, t.Of, n.Now) {
		return Result{}, nil
	}
	return Result{Outcome: Done, Grant: n.grant(t.Request)}, nil
}

// stated returns the number of units that a request states; 0: it wants the whole name.
func stated(r Request) int {
	if r.Units == 0 {
		return 0
	}
	return r.Of
}

// units names the units of a capacity, for errors.
func units(capacity int) string {
	if capacity == Readers {
		return "readers"
	}
	return fmt.Sprintf("%d permits", capacity)
}

// Join takes the lock as Take does, or else joins the end of the queue: Queued. So one request has
// one outcome. ErrCapacity for permits of a name that is read, and the other way round.
//
// Extends names an earlier attempt of the session: if that has the last place in the queue, the
// members of the request join that place, behind the members that it has (Result.Ahead), and no
// place is made for the request. Nothing is overtaken, because nothing stood behind the place. A
// place has at most MaxMembers. Both requests are for the whole name, without any option.
type Join struct {
	Request
	Extends string // "": none
}

// MaxMembers limits the members of a cohort.
const MaxMembers = 256

// Apply implements Op.
func (j Join) Apply(n *Name) (Result, error) {
	capacity, collides := n.Joined(stated(j.Request))
	if collides {
		return Result{}, fmt.Errorf("%w: %q has %s, the request is for %s",
			ErrCapacity, n.Row.Name, units(capacity), units(j.Of))
	}
	if taken, err := (Take{j.Request}).Apply(n); err != nil || taken.Done() {
		return taken, err
	}
	n.Capacity = capacity
	ahead, err := n.extend(j)
	if err == nil && ahead == 0 {
		n.join(j.Request, n.Next)
		n.Next++
	}
	return Result{Outcome: Queued, Ahead: ahead}, err
}

// extend adds the members of a request to the last place in the queue, if that is the one that the
// request extends. It returns the number of members before them; 0: the place stays as it is.
func (n *Name) extend(j Join) (ahead int, err error) {
	if j.Extends == "" {
		return 0, nil
	}
	p, waits, err := n.place(j.Session, j.Extends)
	if err != nil || !waits || p.Ticket != n.Next-1 || p.members()+j.members() > MaxMembers {
		return 0, err
	}
	ahead = p.members()
	p.Members, p.Alive = ahead+j.members(), true
	n.grow(p, j.members())
	return ahead, nil
}

// nextToken returns a token above all earlier tokens of the name, and not below the clock.
func (n *Name) nextToken() int64 { return max(n.Token+1, n.Now) }

// grant grants the name to a request.
func (n *Name) grant(r Request) Grant {
	g := Grant{First: n.nextToken(), Lease: r.Lease}
	g.Token = g.First + int64(r.members()) - 1
	n.Token, n.Since = g.Token, n.Now
	ends := int64(0)
	if r.Lease > 0 {
		ends = n.Now + micros(r.Lease)
	}
	if r.Units > 0 {
		n.Row = n.With(r.Units, r.Of)
		n.PutShares = append(n.PutShares, Share{
			Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Token: g.Token,
			Units: r.Units, Of: r.Of, Since: n.Now, Ends: ends, Metadata: r.Metadata,
		})
		return g
	}
	n.take(r, g, ends)
	n.Rests = 0
	if r.MinHold > 0 {
		n.Rests = n.Now + micros(r.MinHold)
	}
	return g
}

// take writes a request into the row as the holder of the whole name.
func (n *Name) take(r Request, g Grant, ends int64) {
	n.Session, n.Host, n.Thread, n.Attempt = r.Session, r.Host, r.Thread, r.Attempt
	n.First, n.Last, n.Ends = g.First, g.Token, ends
	n.Metadata, n.Asked = r.Metadata, ""
}

// Reenter takes the whole name over from a holder in another session with the host and thread of
// the request. The request gets a new token, before all waiters. Undone where the holder is another
// owner, and where the request is for a share. Undone also for a holder of the same session: that
// client knows its own locks, and may be about to release this one. A rest goes on, unless the
// request has one of its own. ErrBusy where a transaction that guards the lock is open: then no new
// one begins for two seconds.
type Reenter struct{ Request }

// Apply implements Op.
func (r Reenter) Apply(n *Name) (Result, error) {
	if !n.held() || n.Host != r.Host || n.Thread != r.Thread || n.Session == r.Session || r.Units > 0 {
		return Result{}, nil
	}
	if err := n.source.Seize(n.Attempt, true); err != nil {
		return Result{}, err
	}
	n.notify(n.Session, Hint{Attempt: n.Attempt})
	rests := n.Rests
	g := n.grant(r.Request)
	if r.MinHold <= 0 {
		n.Rests = rests
	}
	g.Contended = n.Waiters > 0
	return Result{Outcome: Done, Grant: g}, nil
}
