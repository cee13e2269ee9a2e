package protocol

import (
	"cmp"
	"iter"
	"slices"
)

// Row is the row of a name. All times are microseconds since 1970 on the database's clock.
type Row struct {
	Name                           string
	Session, Host, Thread, Attempt string // of the holder of the whole name; Session "": there is none
	First, Last                    int64  // the tokens of the latest grant of the whole name
	Token                          int64  // the highest token ever reserved
	Since                          int64  // of the last grant; with no holder, of the last release
	Ends                           int64  // of the holder's fixed lease; 0: it has none
	Rests                          int64  // until then the name is granted to no waiter and to no other owner
	Metadata, Asked                string // of the holder
	Units                          int    // that shares have
	// Capacity is the smallest number of units that a share states. It counts while there are
	// shares or waiters.
	Capacity int
	Mixed    bool  // the shares state several numbers
	Waiters  int   // requests in the queue: the members of all places
	Head     int64 // no place has a lower ticket
	Next     int64 // the ticket of the next place
}

// Place is a place in a queue.
type Place struct {
	Request
	Ticket int64
	Since  int64
	Alive  bool // its session is neither dead nor expired; read, never written
}

// Share is a share of a name.
type Share struct {
	Session, Host, Thread, Attempt string
	Token                          int64
	Units, Of                      int
	Since                          int64
	Ends                           int64 // of its fixed lease; 0: it has none
	Metadata, Asked                string
}

// Tally has the sums over the places and shares of a name.
type Tally struct {
	Waiters           int   // the members of all places
	Units             int   // of all shares
	First, Last       int64 // the lowest and the highest ticket; 0: there is no place
	Smallest, Largest int   // the numbers of units that the shares state; 0: there are no shares
}

// Source reads more of a name whose row the transition has locked. It also locks and marks two
// kinds of rows: a session that may be dead, and a guard. Its methods return ErrBusy, or the
// server's own error, which end the transition.
type Source interface {
	// Places returns up to limit places with a higher ticket than after, in the order of tickets.
	Places(after int64, limit int) ([]Place, error)

	// Place returns the place of an attempt.
	Place(session, attempt string) (Place, bool, error)

	// Share returns a share by its token, or with token 0 by its attempt.
	Share(session string, token int64, attempt string) (Share, bool, error)

	// Shares returns all shares.
	Shares() ([]Share, error)

	// Tally adds up the rows of the name. The statement always has an answer, so it reveals a list
	// that was cut short, or that a server answers empty.
	Tally() (Tally, error)

	// Expire marks a session dead that has expired or has no row, and reports whether the session
	// is dead now. ErrBusy where another transaction is marking it.
	Expire(session string) (dead bool, err error)

	// Seize locks the guard of an attempt's hold against all guarded transactions, without waiting,
	// and marks it, so that no transaction can guard the hold any more. Seize does nothing if the
	// hold was never guarded. ErrGuarded and ErrBusy where a guarded transaction is open. With
	// holdOff, no new one begins for two seconds then: the engine writes that beside the
	// transaction that failed.
	Seize(attempt string, holdOff bool) error
}

// Changes are the changes of a transition beside the row, to be written and sent. The row is
// written where Changed says so.
type Changes struct {
	PutPlaces  []Place // new ones
	GonePlaces []Place
	PutShares  []Share // new ones, or new contents of old ones
	GoneShares []Share
	Events     []Event
	Told       []Told
	Handoffs   []Handoff // the grants to waiters, those to the asking session included
	Stirred    bool      // the watchers of the name are notified
}

// Name is a name within a transaction that has locked its row.
type Name struct {
	Row
	Changes
	Now    int64 // read after the row was locked
	source Source
	before Row
}

// Open makes a Name of the row that was read. For a name without a row, it is the zero Row with the
// name: transitions find no holder there, and only Take and Join change it.
func Open(row Row, now int64, source Source) *Name {
	return &Name{Row: row, Now: now, source: source, before: row}
}

// Changed reports whether the row has to be written.
func (n *Name) Changed() bool { return n.Row != n.before }

// Written reports whether anything of the name has to be written: its row, a place or a share. A
// place may be left of a name whose row was deleted by hand.
func (n *Name) Written() bool {
	return n.Changed() || len(n.GonePlaces)+len(n.GoneShares)+len(n.PutPlaces)+len(n.PutShares) > 0
}

// held reports whether the whole name has a holder.
func (n *Name) held() bool { return n.Session != "" }

// resting reports whether the MinHold of the latest grant goes on.
func (n *Name) resting() bool { return n.Rests > n.Now }

// holds reports whether a session holds the whole name with this token.
func (n *Name) holds(session string, token int64) bool {
	return n.held() && n.Session == session && n.Last == token
}

// tell adds a hint for a session.
func (n *Name) tell(session string, hint Hint) { n.Told = append(n.Told, Told{session, hint}) }

// pages are the numbers of places that are read first and then at a time: a hand-over mostly needs
// one.
var pages = [...]int{2, 16}

// queue iterates over the places in the order of tickets.
func (n *Name) queue() iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		put := slices.SortedFunc(slices.Values(n.PutPlaces), func(a, b Place) int {
			return cmp.Compare(a.Ticket, b.Ticket)
		})
		after := n.Head - 1
		for page, more := pages[0], true; more; page = pages[1] {
			places, err := n.source.Places(after, page)
			if err != nil {
				yield(Place{}, err)
				return
			}
			if more = len(places) >= page; more {
				after = places[len(places)-1].Ticket
			}
			for _, p := range places {
				for len(put) > 0 && put[0].Ticket < p.Ticket {
					if !yield(put[0], nil) {
						return
					}
					put = put[1:]
				}
				if !n.left(p) && !yield(p, nil) {
					return
				}
			}
		}
		for _, p := range put {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// left reports whether this transition has removed a place.
func (n *Name) left(p Place) bool {
	return slices.ContainsFunc(n.GonePlaces, func(gone Place) bool { return gone.Ticket == p.Ticket })
}

// join adds a place with a ticket.
func (n *Name) join(r Request, ticket int64) {
	n.PutPlaces = append(n.PutPlaces, Place{Request: r, Ticket: ticket, Since: n.Now, Alive: true})
	n.Waiters += r.members()
}

// leave removes a place.
func (n *Name) leave(p Place) {
	n.Waiters = max(n.Waiters-p.members(), 0) // after deletes by hand the number was wrong
	before := len(n.PutPlaces)
	n.PutPlaces = slices.DeleteFunc(n.PutPlaces, func(put Place) bool { return put.Ticket == p.Ticket })
	if len(n.PutPlaces) == before {
		n.GonePlaces = append(n.GonePlaces, p)
	}
}

// drop removes a share from the name. From then on the capacity is that of the remaining shares.
func (n *Name) drop(s Share) error {
	n.GoneShares = append(n.GoneShares, s)
	n.Units -= s.Units
	if n.Units <= 0 {
		n.Units, n.Mixed, n.Since = 0, false, n.Now
		return nil
	}
	if !n.Mixed {
		return nil
	}
	shares, err := n.source.Shares()
	n.Capacity, n.Mixed = 0, false
	for _, other := range shares {
		switch {
		case other.Token == s.Token:
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

// free removes the holder of the whole name.
func (n *Name) free() {
	n.Session, n.Host, n.Thread, n.Attempt, n.Metadata, n.Asked = "", "", "", "", "", ""
	n.Ends, n.Since = 0, n.Now
}
