package dblocktest

import (
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
)

// database has the tables of dblock in memory. Every transition runs at once and alone, with mu
// locked, so that it needs no order of locks. All times are microseconds since 1970, as in the
// tables of the engines.
type database struct {
	*clock.Movable
	advancing chan struct{} // an element while an Advance runs: one at a time

	mu          sync.Mutex // protects the fields below
	names       memory.Names
	sessions    map[string]*sessionRow
	events      []driver.Event
	lastEvent   int64
	runs        map[string][]*slots.Row      // by name
	watchers    map[string]map[string]string // by name and watch: the session
	incarnation *incarnation
	listeners   map[string]*listener // by session
	clients     map[string]*watched  // by session, while it lives
	changed     chan struct{}        // closed, and made anew, by each transition of a name
}

func newDatabase() *database {
	d := &database{
		Movable: clock.NewMovable(), advancing: make(chan struct{}, 1),
		sessions: map[string]*sessionRow{}, runs: map[string][]*slots.Row{}, watchers: map[string]map[string]string{},
		listeners: map[string]*listener{}, clients: map[string]*watched{}, changed: make(chan struct{}),
	}
	d.names = memory.Names{Now: d.now, Alive: d.alive, Expire: d.expire}
	return d
}

// now returns the time of the database's clock, in microseconds since 1970.
func (d *database) now() int64 { return d.Began().Add(d.Now()).UnixMicro() }

// inBubble reports whether the clock is that of a bubble of testing/synctest, whose time begins
// with the year 2000.
func (d *database) inBubble() bool { return d.Began().Year() < 2020 }

func timeOf(us int64) time.Time { return time.UnixMicro(us) }

func micros(d time.Duration) int64 { return d.Microseconds() }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// run runs an op, and sends its hints.
func (d *database) run(op protocol.Op) (protocol.Result, error) {
	result, left, err := d.names.Run(op)
	if err != nil {
		return protocol.Result{}, err
	}
	for _, e := range left.Events {
		d.record(e)
	}
	for _, told := range left.Told {
		d.tell(told.Session, told.Hint)
	}
	if left.Stirred {
		d.stir(op.On())
	}
	d.signal()
	return result, nil
}

// signal wakes the functions of this package that wait for a queue to change.
func (d *database) signal() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// holder is a holder of the whole name, with Units 0, or of a share.
type holder struct {
	protocol.Share
	first int64 // the token of the first member of a cohort; otherwise as Token
}

// whole returns the holder of the whole name; without a session: there is none.
func whole(row protocol.Row) holder {
	return holder{protocol.Share{
		Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Last,
		Since: row.Since, Ends: row.Ends, Metadata: row.Metadata, Asked: row.Asked,
	}, row.First}
}

// holders returns the holder of the whole name, and those of shares.
func (d *database) holders(name string) (all []holder) {
	if row, _ := d.names.Row(name); row.Session != "" {
		all = append(all, whole(row))
	}
	for _, s := range d.names.Shares(name) {
		all = append(all, holder{s, s.Token})
	}
	return all
}

// rowOf returns a holder, or a waiter without a token, as a statement reads it.
func (d *database) rowOf(h holder) inspection.Row {
	r := inspection.Row{
		SessionID: h.Session, Host: h.Host, Thread: h.Thread, Attempt: h.Attempt, Token: h.Token, FirstToken: h.first,
		Units: int64(h.Units),
		Since: h.Since, ExpiresAt: h.Ends, SessionExpiresAt: d.expiry(h.Session), Capacity: int64(h.Of), NowUs: d.now(),
		Metadata: h.Metadata, Asked: h.Asked,
	}
	if s := d.sessions[h.Session]; s != nil {
		r.App, r.Pid = s.App, int64(s.PID)
	}
	return r
}

// shown returns a holder in the form of package driver.
func (d *database) shown(h holder) driver.Holder { return d.rowOf(h).Holder() }
