package memory

import (
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
)

// DB has the tables of dblock in memory. Every transition runs at once and alone, with Mu locked,
// so that it needs no order of locks. All times are microseconds since 1970, as in the tables of
// the engines.
type DB struct {
	*clock.Movable

	Mu          sync.Mutex // protects the fields below
	Locks       Names
	SessionRows map[string]*SessionRow
	EventRows   []protocol.Event
	RunRows     map[string][]*slots.Row      // by name
	WatchRows   map[string]map[string]string // by name and watch: the session
	Changed     chan struct{}                // closed, and made anew, by each transition of a name
	lastEvent   int64
	incarnation *incarnation
	listeners   map[string]*listener // by session
}

// NewDB makes empty tables.
func NewDB() *DB {
	d := &DB{
		Movable: clock.NewMovable(), SessionRows: map[string]*SessionRow{}, RunRows: map[string][]*slots.Row{},
		WatchRows: map[string]map[string]string{}, listeners: map[string]*listener{}, Changed: make(chan struct{}),
	}
	d.Locks = Names{Now: d.Micros, Alive: d.alive, Expire: d.expire}
	return d
}

// Micros returns the time of the database's clock, in microseconds since 1970.
func (d *DB) Micros() int64 { return d.Began().Add(d.Now()).UnixMicro() }

func timeOf(us int64) time.Time { return time.UnixMicro(us) }

func micros(d time.Duration) int64 { return d.Microseconds() }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Apply runs an op, and sends its hints. MUST be called with Mu locked.
func (d *DB) Apply(op protocol.Op) (protocol.Result, error) {
	result, left, err := d.Locks.Apply(op)
	if err != nil {
		return protocol.Result{}, err
	}
	for _, e := range left.Events {
		d.record(e)
	}
	for _, notice := range left.Notices {
		d.tell(notice.Session, notice.Hint)
	}
	if left.WakesWatchers {
		d.notifyWatchers(op.On())
	}
	d.signal()
	return result, nil
}

// signal wakes all goroutines that wait for a queue to change.
func (d *DB) signal() {
	close(d.Changed)
	d.Changed = make(chan struct{})
}

// Holder is a holder of the whole name, with Units 0, or of a share.
type Holder struct {
	protocol.Share
	First int64 // the token of the first member of a cohort; otherwise as Token
}

// whole returns the holder of the whole name; without a session: there is none.
func whole(row protocol.Row) Holder {
	return Holder{protocol.Share{
		Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Token: row.Last,
		Since: row.Since, Ends: row.Ends, Metadata: row.Metadata, Asked: row.Asked,
	}, row.First}
}

// Holders returns the holder of the whole name, and those of shares. MUST be called with Mu locked.
func (d *DB) Holders(name string) (all []Holder) {
	if row, _ := d.Locks.Row(name); row.Session != "" {
		all = append(all, whole(row))
	}
	for _, s := range d.Locks.Shares(name) {
		all = append(all, Holder{s, s.Token})
	}
	return all
}

// rowOf returns a holder, or a waiter without a token, as a statement reads it.
func (d *DB) rowOf(h Holder) inspection.Row {
	r := inspection.Row{
		SessionID: h.Session, Host: h.Host, Thread: h.Thread, Attempt: h.Attempt, Token: h.Token, FirstToken: h.First,
		Units: int64(h.Units), Since: h.Since, ExpiresAt: h.Ends, SessionExpiresAt: d.expiry(h.Session),
		Capacity: int64(h.Of), NowUs: d.Micros(), Metadata: h.Metadata, Asked: h.Asked,
	}
	if s := d.SessionRows[h.Session]; s != nil {
		r.App, r.Pid, r.Buried = s.App, int64(s.PID), s.Buried
	}
	return r
}

// shown returns a holder in the form of package driver.
func (d *DB) shown(h Holder) protocol.Holder { return d.rowOf(h).Holder() }
