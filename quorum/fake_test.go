package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	fakeTTL        = 4 * time.Second
	fakeQuarantine = 10 * time.Second
	fakeLimit      = 500 * time.Millisecond
)

var (
	errDown    = fmt.Errorf("%w: down", dblock.ErrUnavailable)
	errCrashed = errors.New("the process has crashed")
)

// server is a database in memory. It keeps dblock's promises of one database, and nothing else: tokens that follow its own clock,
// which may be wrong, holders that live as long as their sessions, a memory that a wipe takes away.
type server struct {
	bugs *bugs

	mu     sync.Mutex // protects what follows
	data   data
	offset time.Duration // of its clock
	down   bool
	hangs  bool // when down: it does not even refuse
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

// bugs are what a node may do wrong, to see that the checker finds it.
type bugs struct {
	noWriteBack  bool // the token is not told to the nodes
	noQuarantine bool // a node that lost its data counts at once
	noHealing    bool // it does not learn the tokens
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

// take grants a free name, or that of a holder whose time is over.
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

// purge forgets what the clock remembers.
func (s *server) purge() {
	for name, r := range s.data.rows {
		if r.session == "" && r.token < s.clock() {
			delete(s.data.rows, name)
		}
	}
}

// process is a program with a client of each server. It may crash between any two of its steps.
type process struct {
	id  int
	rng *dice

	mu      sync.Mutex // protects what follows
	fuse    int        // steps until it crashes; negative: it does not
	crashed bool
	stops   int // how often it was stopped for a while
}

// step is a moment at which the process may crash, or be stopped for a while.
func (p *process) step() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fuse == 0 {
		p.crashed = true
	}
	p.fuse--
	if p.crashed {
		return errCrashed
	}
	return nil
}

func (p *process) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.calm || p.rng.n(50) > 0 {
		return false
	}
	p.stops++
	return true
}

func (p *process) stopped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// dice are random numbers for several goroutines.
type dice struct {
	calm bool // nothing happens that is not in the script
	mu   sync.Mutex
	r    *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// upTo is longer than 0, so that things happen one after the other.
func (d *dice) upTo(limit time.Duration) time.Duration { return time.Duration(1 + d.n(int(limit))) }

// peer is a process's client of a server.
type peer struct {
	p *process
	s *server

	mu      sync.Mutex // protects what follows
	session *fakeSession
}

type fakeSession struct {
	id  string
	ctx context.Context
	end context.CancelCauseFunc

	mu       sync.Mutex // protects deadline
	deadline time.Time
}

// call does something on the server, which takes a while on the way there and on the way back. The caller may be gone by then:
// late is told.
func (n *peer) call(ctx context.Context, do func() error, late func()) error {
	if err := n.p.step(); err != nil {
		return err
	}
	var mu sync.Mutex // protects gone, and orders the answer and the caller's leaving
	gone := false
	done := make(chan error, 1)
	go func() {
		err := n.travel(do)
		mu.Lock()
		defer mu.Unlock()
		if gone && err == nil && late != nil {
			go late()
		}
		done <- err
	}()
	ended := ctx.Done()
	if n.p.stop() { // and does not see that its time is over
		ended = nil
	}
	var err error
	select {
	case err = <-done:
	case <-ended:
		mu.Lock()
		defer mu.Unlock()
		select {
		case err = <-done:
		default:
			gone = true
			return ctx.Err()
		}
	}
	if crash := n.p.step(); crash != nil {
		return crash
	}
	return err
}

func (n *peer) travel(do func() error) error {
	n.s.mu.Lock()
	slow := n.s.slow
	n.s.mu.Unlock()
	time.Sleep(n.p.rng.upTo(5*time.Millisecond) + slow)
	if !n.p.rng.calm && n.p.rng.n(200) == 0 {
		time.Sleep(n.p.rng.upTo(3 * fakeTTL / 2))
	}
	n.s.mu.Lock()
	down, hangs := n.s.down, n.s.hangs
	var err error
	if !down {
		err = do()
	}
	n.s.mu.Unlock()
	if down && hangs {
		time.Sleep(fakeTTL)
	}
	if down {
		return errDown
	}
	time.Sleep(n.p.rng.upTo(5 * time.Millisecond))
	return err
}

// living returns the session, or opens one and keeps it alive.
func (n *peer) living(ctx context.Context) (*fakeSession, error) {
	n.mu.Lock()
	s := n.session
	n.mu.Unlock()
	if s != nil && s.ctx.Err() == nil {
		return s, nil
	}
	s = &fakeSession{id: fmt.Sprintf("%d/%d", n.p.id, n.p.rng.n(1<<40))}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	sent := time.Now()
	if err := n.call(ctx, func() error { n.s.data.sessions[s.id] = time.Now().Add(fakeTTL); return nil }, nil); err != nil {
		return nil, err
	}
	s.deadline = sent.Add(fakeTTL - fakeTTL/100 - 2*time.Since(sent))
	go n.keep(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session = s
	return s, nil
}

// keep sends heartbeats, and ends the session at its deadline.
func (n *peer) keep(s *fakeSession) {
	beat := time.NewTicker(fakeTTL / 5)
	defer beat.Stop()
	for s.ctx.Err() == nil && !n.p.dead() {
		s.mu.Lock()
		left := time.Until(s.deadline)
		s.mu.Unlock()
		if left <= 0 {
			break
		}
		select {
		case <-time.After(left):
		case <-beat.C:
			go n.beat(s)
		case <-s.ctx.Done():
		}
	}
	s.end(fmt.Errorf("%w: the session is over", dblock.ErrLost))
}

func (n *peer) beat(s *fakeSession) {
	sent := time.Now()
	known := false
	err := n.travel(func() error {
		if _, known = n.s.data.sessions[s.id]; known && !n.p.dead() {
			n.s.data.sessions[s.id] = time.Now().Add(fakeTTL)
		}
		return nil
	})
	if err != nil {
		return
	}
	if !known {
		s.end(fmt.Errorf("%w: the session is dead", dblock.ErrLost))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.deadline) && known {
		s.deadline = sent.Add(fakeTTL - fakeTTL/100 - 2*time.Since(sent))
	}
}

func (n *peer) TryLock(ctx context.Context, name string) (nodeLock, error) {
	s, err := n.living(ctx)
	if err != nil {
		return nil, err
	}
	l := &fakeLock{n: n, s: s, name: name}
	l.ctx, l.cancel = context.WithCancelCause(s.ctx)
	err = n.call(ctx, func() (err error) { l.token, err = n.s.take(name, s.id, l); return err }, func() { l.undo() })
	if err != nil {
		return nil, err
	}
	if l.ctx.Err() != nil {
		go l.undo()
		return nil, dblock.ErrUnavailable
	}
	return l, nil
}

func (n *peer) Memory(ctx context.Context) (memory, error) {
	var m memory
	if err := n.call(ctx, func() error { m = n.s.memory(); return nil }, nil); err != nil {
		return memory{}, err // m may still be written
	}
	if n.s.bugs.noQuarantine {
		m = memory{time.Hour, max(m.floor, 1)}
	}
	return m, nil
}

func (n *peer) Highest(ctx context.Context) (int64, error) {
	var h int64
	if err := n.call(ctx, func() error { h = n.s.highest(); return nil }, nil); err != nil {
		return 0, err
	}
	if n.s.bugs.noHealing {
		h = 1
	}
	return h, nil
}

func (n *peer) Renew(ctx context.Context, floor int64) error {
	return n.call(ctx, func() error { n.s.data.since, n.s.data.floor = time.Now(), floor; return nil }, nil)
}

type fakeLock struct {
	n      *peer
	s      *fakeSession
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects token
	token int64
}

func (l *fakeLock) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

func (l *fakeLock) Context() context.Context { return l.ctx }

func (l *fakeLock) Until() time.Time {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.deadline
}

func (l *fakeLock) Raise(ctx context.Context, token int64) (int64, error) {
	had := l.Token()
	raised := max(had, token)
	err := l.n.call(ctx, func() error {
		switch {
		case l.n.s.data.rows[l.name] != row{had, l.s.id, l}:
			return dblock.ErrLost
		case !l.n.s.bugs.noWriteBack:
			l.n.s.data.rows[l.name] = row{raised, l.s.id, l}
		}
		return nil
	}, nil)
	if err == nil && !l.n.s.bugs.noWriteBack {
		l.mu.Lock()
		l.token = raised
		l.mu.Unlock()
	}
	return raised, err
}

func (l *fakeLock) Unlock(ctx context.Context) error {
	lost := l.ctx.Err() != nil
	l.cancel(dblock.ErrNotHeld)
	err := l.n.call(ctx, func() error { l.free(); return nil }, nil)
	if err != nil && !errors.Is(err, errCrashed) {
		go l.undo()
	}
	if lost {
		return dblock.ErrLost
	}
	return err
}

// free gives the name back, whatever its token was raised to.
func (l *fakeLock) free() {
	if r := l.n.s.data.rows[l.name]; r.attempt == l {
		l.n.s.data.rows[l.name] = row{token: r.token}
	}
}

// undo is what a node's client does in the background for as long as its session lives.
func (l *fakeLock) undo() {
	for l.s.ctx.Err() == nil && !l.n.p.dead() && l.n.travel(func() error { l.free(); return nil }) != nil {
		time.Sleep(100 * time.Millisecond)
	}
}
