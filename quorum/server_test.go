package quorum

import (
	"maps"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// server is a database in memory. It keeps dblock's promises of one database, and nothing else:
// tokens that follow its own clock, which may be wrong, holders that live as long as their
// sessions, a memory that a wipe takes away.
type server struct {
	bugs *bugs

	mu     sync.Mutex // protects what follows
	data   data
	offset time.Duration // of its clock
	down   bool
	hangs  bool // when down: it does not answer at all
	slow   time.Duration
}

// data is what a backup has.
type data struct {
	rows     map[string]row
	sessions map[string]time.Time // when they expire
	since    time.Time            // zero: it has no memory
	floor    int64
}

type row struct {
	token   int64
	session string // "": free
	attempt *fakeLock
}

// bugs are faults of a node that the checker must find.
type bugs struct {
	noWriteBack  bool // the token is not written to the nodes
	noQuarantine bool // a node that lost its data counts at once
	noHealing    bool // a node that lost its data does not learn the tokens
}

func newServer(b *bugs, offset time.Duration) *server {
	s := &server{bugs: b, offset: offset}
	s.wipe()
	return s
}

func (s *server) wipe() { s.data = data{rows: map[string]row{}, sessions: map[string]time.Time{}} }

func (s *server) clock() int64 { return time.Now().Add(s.offset).UnixMicro() }

func (s *server) backup() data {
	return data{maps.Clone(s.data.rows), maps.Clone(s.data.sessions), s.data.since, s.data.floor}
}

// take grants a name that is free or has an expired holder.
func (s *server) take(name, session string, attempt *fakeLock) (int64, error) {
	r := s.data.rows[name]
	if end, alive := s.data.sessions[r.session]; r.session != "" && alive && time.Now().Before(end) {
		return 0, dblock.ErrNotAcquired
	}
	delete(s.data.sessions, r.session) // dead for good
	r = row{max(r.token+1, s.clock()), session, attempt}
	s.data.rows[name] = r
	return r.token, nil
}

func (s *server) memory() memory {
	if s.data.since.IsZero() {
		s.data.since = time.Now()
	}
	return memory{time.Since(s.data.since), s.data.floor}
}

func (s *server) highest() int64 {
	h := max(s.clock(), s.data.floor)
	for _, r := range s.data.rows {
		h = max(h, r.token)
	}
	return h
}

// purge deletes free names with tokens below the clock.
func (s *server) purge() {
	for name, r := range s.data.rows {
		if r.session == "" && r.token < s.clock() {
			delete(s.data.rows, name)
		}
	}
}
