package protocol

import (
	"cmp"
	"iter"
	"slices"
)

// seen is what a transition has read of the places and shares in its source. The lock of the name's
// row keeps them as they are, so none is read twice.
type seen struct {
	page   int     // the number of places that are read first
	places []Place // the queue from its head on
	ended  bool    // places has the whole queue
	tokens []int64 // of the shares that were looked for
	shares []Share // those that are there
	all    bool    // shares has all of them
}

// pages are the numbers of places that are read first and then at a time: a hand-over mostly needs
// one.
var pages = [...]int{2, 16}

// readPage reads the next places from the source.
func (n *Name) readPage() error {
	after, page := n.Head-1, max(n.seen.page, pages[0])
	if read := len(n.seen.places); read > 0 {
		after, page = n.seen.places[read-1].Ticket, pages[1]
	}
	places, err := n.source.Places(after, page)
	n.seen.places, n.seen.ended = append(n.seen.places, places...), len(places) < page
	return err
}

// queue iterates over the places in the order of tickets.
func (n *Name) queue() iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		put := slices.SortedFunc(slices.Values(n.PutPlaces), func(a, b Place) int {
			return cmp.Compare(a.Ticket, b.Ticket)
		})
		for i := 0; ; i++ {
			if i == len(n.seen.places) && !n.seen.ended {
				if err := n.readPage(); err != nil {
					yield(Place{}, err)
					return
				}
			}
			if i == len(n.seen.places) {
				break
			}
			p := n.seen.places[i]
			for len(put) > 0 && put[0].Ticket < p.Ticket {
				if !yield(put[0], nil) {
					return
				}
				put = put[1:]
			}
			if i := at(n.SetPlaces, p.Ticket); i >= 0 {
				p = n.SetPlaces[i]
			}
			if !n.left(p) && !yield(p, nil) {
				return
			}
		}
		for _, p := range put {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// place returns the place of an attempt.
func (n *Name) place(session, attempt string) (Place, bool, error) {
	for _, p := range slices.Concat(n.PutPlaces, n.SetPlaces) {
		if p.Session == session && p.Attempt == attempt {
			return p, true, nil
		}
	}
	p, waits, err := n.source.Place(session, attempt)
	return p, waits && !n.left(p), err
}

// left reports whether this transition has removed a place of the source.
func (n *Name) left(p Place) bool { return at(n.GonePlaces, p.Ticket) >= 0 }

// join adds a place with a ticket.
func (n *Name) join(r Request, ticket int64) {
	n.PutPlaces = append(n.PutPlaces, Place{Request: r, Ticket: ticket, Since: n.Now, Alive: true})
	n.Waiters += r.members()
}

// grow changes a place to which members were added.
func (n *Name) grow(p Place, members int) {
	n.Waiters += members
	for _, changed := range [][]Place{n.PutPlaces, n.SetPlaces} {
		if i := at(changed, p.Ticket); i >= 0 {
			changed[i] = p
			return
		}
	}
	n.SetPlaces = append(n.SetPlaces, p)
}

// at returns the index of the place with a ticket; -1: there is none.
func at(places []Place, ticket int64) int {
	return slices.IndexFunc(places, func(p Place) bool { return p.Ticket == ticket })
}

// leave removes a place.
func (n *Name) leave(p Place) {
	n.Waiters = max(n.Waiters-p.members(), 0) // after deletes by hand the number was wrong
	is := func(other Place) bool { return other.Ticket == p.Ticket }
	if at(n.PutPlaces, p.Ticket) < 0 {
		n.GonePlaces = append(n.GonePlaces, p)
	}
	n.PutPlaces, n.SetPlaces = slices.DeleteFunc(n.PutPlaces, is), slices.DeleteFunc(n.SetPlaces, is)
}

// look reads the shares with these tokens, so that share finds them.
func (n *Name) look(tokens []int64) error {
	shares, err := n.source.Shares(tokens...)
	n.seen.tokens, n.seen.shares = append(n.seen.tokens, tokens...), append(n.seen.shares, shares...)
	return err
}

// share returns a share by its token.
func (n *Name) share(session string, token int64) (Share, bool, error) {
	if !n.seen.all && !slices.Contains(n.seen.tokens, token) {
		if err := n.look([]int64{token}); err != nil {
			return Share{}, false, err
		}
	}
	for _, s := range n.changed(n.seen.shares) {
		if s.Token == token && s.Session == session {
			return s, true, nil
		}
	}
	return Share{}, false, nil
}

// shareOf returns the share of an attempt.
func (n *Name) shareOf(session, attempt string) (Share, bool, error) {
	s, found, err := n.source.ShareOf(session, attempt)
	if err != nil {
		return Share{}, false, err
	}
	var source []Share
	if found {
		source = append(source, s)
	}
	for _, s := range n.changed(source) {
		if s.Session == session && s.Attempt == attempt {
			return s, true, nil
		}
	}
	return Share{}, false, nil
}

// shares returns all shares.
func (n *Name) shares() ([]Share, error) {
	if !n.seen.all {
		shares, err := n.source.Shares()
		if err != nil {
			return nil, err
		}
		n.seen.shares, n.seen.all = shares, true
	}
	return n.changed(n.seen.shares), nil
}

// changed returns shares of the source as this transition has left them, with those that it has
// added.
func (n *Name) changed(source []Share) (shares []Share) {
	for _, s := range source {
		if i := find(n.SetShares, s.Token); i >= 0 {
			s = n.SetShares[i]
		}
		if find(n.GoneShares, s.Token) < 0 {
			shares = append(shares, s)
		}
	}
	return append(shares, n.PutShares...)
}

// find returns the index of the share with a token; -1: there is none.
func find(shares []Share, token int64) int {
	return slices.IndexFunc(shares, func(s Share) bool { return s.Token == token })
}

// set changes the contents of a share.
func (n *Name) set(s Share) {
	for _, changed := range [][]Share{n.PutShares, n.SetShares} {
		if i := find(changed, s.Token); i >= 0 {
			changed[i] = s
			return
		}
	}
	n.SetShares = append(n.SetShares, s)
}

// drop removes a share from the name. From then on the capacity is that of the remaining shares.
func (n *Name) drop(s Share) error {
	is := func(other Share) bool { return other.Token == s.Token }
	if find(n.PutShares, s.Token) < 0 {
		n.GoneShares = append(n.GoneShares, s)
	}
	n.PutShares, n.SetShares = slices.DeleteFunc(n.PutShares, is), slices.DeleteFunc(n.SetShares, is)
	n.Units -= s.Units
	if n.Units <= 0 {
		n.Units, n.Mixed, n.Since = 0, false, n.Now
		return nil
	}
	if !n.Mixed {
		return nil
	}
	shares, err := n.shares()
	n.Capacity, n.Mixed = 0, false
	for _, other := range shares {
		switch {
		case n.Capacity == 0:
			n.Capacity = other.Of
		case n.Capacity != other.Of:
			n.Capacity, n.Mixed = min(n.Capacity, other.Of), true
		}
	}
	if err == nil && n.Capacity == 0 { // units without a share: the list may have been cut short
		err = ErrRetry
	}
	return err
}

// Contents returns the places and the shares of a name. Tests compare engines by their contents.
func (n *Name) Contents() (places []Place, shares []Share, err error) {
	for p, err := range n.queue() {
		if err != nil {
			return nil, nil, err
		}
		places = append(places, p)
	}
	shares, err = n.shares()
	return places, shares, err
}
