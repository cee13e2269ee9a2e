package protocol

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

	// ShareOf returns the share of an attempt.
	ShareOf(session, attempt string) (Share, bool, error)

	// Shares returns the shares with these tokens, and without tokens all of them.
	Shares(tokens ...int64) ([]Share, error)

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
// written where Changed says so. What a Sequence adds and removes again is in no list.
type Changes struct {
	PutPlaces     []Place // new ones
	SetPlaces     []Place // new contents of those in the source: Members
	GonePlaces    []Place // of those in the source
	PutShares     []Share // new ones
	SetShares     []Share // new contents of those in the source: Ends and Asked
	GoneShares    []Share // of those in the source
	Events        []Event
	Notices       []Notice
	Handoffs      []Handoff // the grants to waiters, those to the asking session included
	WakesWatchers bool      // the watchers of the name are notified
}

// Name is a name within a transaction that has locked its row.
type Name struct {
	Row
	Changes
	Now    int64 // read after the row was locked
	source Source
	before Row
	seen   seen
	handed int // the Handoffs of earlier ops of a Sequence
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
	return n.Changed() ||
		len(n.GonePlaces)+len(n.SetPlaces)+len(n.GoneShares)+len(n.PutPlaces)+len(n.PutShares)+len(n.SetShares) > 0
}

// held reports whether the whole name has a holder.
func (n *Name) held() bool { return n.Session != "" }

// resting reports whether the MinHold of the latest grant goes on.
func (n *Name) resting() bool { return n.Rests > n.Now }

// holds reports whether a session holds the whole name with this token.
func (n *Name) holds(session string, token int64) bool {
	return n.held() && n.Session == session && n.Last == token
}

// notify adds a hint for a session.
func (n *Name) notify(session string, hint Hint) {
	n.Notices = append(n.Notices, Notice{session, hint})
}

// free removes the holder of the whole name.
func (n *Name) free() {
	n.Session, n.Host, n.Thread, n.Attempt, n.Metadata, n.Asked = "", "", "", "", "", ""
	n.Ends, n.Since = 0, n.Now
}
