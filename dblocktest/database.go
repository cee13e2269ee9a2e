package dblocktest

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/clock"
)

// database has the tables of dblock in memory. Every transition runs at once and alone, with mu
// locked, so that it needs no order of locks. All times are microseconds since 1970, as in the
// tables of the engines.
type database struct {
	times
	advancing chan struct{} // a token: one Advance at a time

	mu          sync.Mutex // protects what follows
	locks       map[string]*name
	sessions    map[string]*sessionRow
	events      []driver.Event
	lastEvent   int64
	runs        map[string][]*run            // by name
	watchers    map[string]map[string]string // by name and watch: the session
	incarnation *incarnation
	ears        map[string]*ear     // by session
	clients     map[string]*watched // by session, while it lives
	changed     chan struct{}       // closed, and made anew, by each transition that may change a queue
}

func newDatabase() *database {
	return &database{
		times: times{clock.NewMovable()}, advancing: make(chan struct{}, 1),
		locks: map[string]*name{}, sessions: map[string]*sessionRow{}, runs: map[string][]*run{},
		watchers: map[string]map[string]string{}, ears: map[string]*ear{}, clients: map[string]*watched{}, changed: make(chan struct{}),
	}
}

// name is a name with its holders and its queue.
type name struct {
	is          string
	token       int64 // the highest token ever reserved
	first, last int64 // the tokens of the run that has the whole name, or had it
	whole       *hold // nil: nobody has the whole name
	since       int64 // of the last grant; with nobody holding it, of the last release
	shares      []*hold
	capacity    int
	queue       []*place // in the order of their tickets; the members of a run come first
	ticket      int64    // of the next place
	rests       int64    // until then nobody is granted the name
}

// hold is the whole name, or units of it, with a holder.
type hold struct {
	session, host, thread, attempt string
	units                          int   // 0: the whole name
	of                             int   // with units: how many there are, as the holder states
	token                          int64 // of a run: its last
	holds                          int
	since                          int64
	ends                           int64 // of the fixed lease; 0: it has none
	metadata, asked                string
}

// place is a place in a queue.
type place struct {
	driver.Request
	ticket int64
	token  int64 // of a member of a run; 0: it waits
	since  int64
}

// sessionRow is a session of a client.
type sessionRow struct {
	driver.Session
	started, expires int64
	dead             bool
}

// at returns a name, which it makes where there is none.
func (d *database) at(is string) *name {
	n := d.locks[is]
	if n == nil {
		n = &name{is: is, ticket: 1, since: d.now()}
		d.locks[is] = n
	}
	return n
}

// sorted are the names, in the order of their bytes.
func (d *database) sorted() []string { return slices.Sorted(maps.Keys(d.locks)) }

// holders are those of the whole name and of units of it.
func (n *name) holders() []*hold {
	if n.whole != nil {
		return append([]*hold{n.whole}, n.shares...)
	}
	return n.shares
}

// find returns the holder that has the name by this token, or nil.
func (n *name) find(session string, token int64) *hold {
	for _, h := range n.holders() {
		if h.session == session && h.token == token {
			return h
		}
	}
	return nil
}

func (n *name) used() (units int) {
	for _, h := range n.shares {
		units += h.units
	}
	return units
}

func (n *name) inRun() bool { return n.whole != nil && n.first < n.last }

// run returns the tokens of the run that has the name; the zero value: there is none.
func (n *name) run() driver.Range {
	if n.inRun() {
		return driver.Range{First: n.first, Last: n.last}
	}
	return driver.Range{}
}

// over reports whether a fixed lease is over.
func (d *database) over(h *hold) bool { return h.ends != 0 && h.ends <= d.now() }

func micros(d time.Duration) int64 { return d.Microseconds() }

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
