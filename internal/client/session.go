package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/wait"
)

// idleTTLs is how many TTLs a session outlives its last use.
const idleTTLs = 4

var errIdle = errors.New("the client has used its session for nothing")

// clientSession is a session of a client, with what belongs to it: the waiting room, what its
// goroutines send together, the search for deadlocks.
type clientSession struct {
	*session.Session
	hub      *wait.Hub
	batcher  *batcher
	cohorts  *cohorts
	deadlock *deadlock.Detector
}

// listening is an engine, of which a session decides on which connection to listen.
type listening struct {
	driver.Backend
	in *session.Session
}

func (l listening) Listen(ctx context.Context, ready func(), wake func(driver.Hint)) error {
	return l.in.Listen(ctx, ready, wake)
}

// over is why the session holds nothing any more, or nil.
func (s *clientSession) over() error {
	switch {
	case s.Context().Err() != nil:
		return context.Cause(s.Context())
	case !s.Alive():
		return session.ErrExpired
	}
	return nil
}

// deliver tells the waiters of this client what a statement has given them. Where its answer was
// lost they look for themselves.
func (s *clientSession) deliver(name string, next []driver.Handoff, asked time.Duration, err error) {
	s.hub.Deliver(next, asked)
	if err != nil && residueOf(err) == unsure {
		s.hub.Recheck(name)
	}
}

// sessions are a client's: one that is alive, and those that are about to end.
type sessions struct {
	calls    *calls
	engine   driver.Backend
	host     string
	app      string
	clock    clock.Clock
	log      *slog.Logger
	deadlock time.Duration // how long a waiter waits before it looks for a cycle; 0: never

	reconcile func(ctx context.Context, s *session.Session, list func(context.Context) ([]driver.Attempt, error)) error
	holding   func() bool
	unused    func() bool // nothing is held, asked for, or to be given back
	unknown   func(attempt string)
	reclaimed func(name string, holder driver.Holder)
	lost      func(s *clientSession) // called when a session is over
	opened    func(s *session.Session) (lost func())
	first     func() // called when the first session is there
	beaten    func(took time.Duration, err error)
	listener  func(up bool, err error)
	reports

	database atomic.Value // which one it is, as the schema tells: a string

	polls   atomic.Bool    // a session has said why it polls
	opening chan struct{}  // a token: one goroutine at a time opens a session
	used    atomic.Bool    // since retire last looked
	running sync.WaitGroup // sessions, and what first has begun

	mu     sync.Mutex // protects what follows
	latest *clientSession
	leave  func() // ends what the engine keeps for this client; nil without a session
}

// reports are of what the sessions of a client do, one after the other.
type reports struct{ beating, connecting, hearing, looking, taking, deadlocks *outage.Report }

// open returns the session that is alive now, and opens one where none is.
func (m *sessions) open(ctx context.Context) (*clientSession, error) {
	for {
		s, err := m.tryOpen(ctx)
		if !errors.Is(err, driver.ErrBusy) {
			return s, err
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return nil, driver.Fail(ctx.Err(), err)
		}
	}
}

// tryOpen is open that does not wait for a transaction of the application's which has locked the
// database: ErrBusy.
func (m *sessions) tryOpen(ctx context.Context) (*clientSession, error) {
	if s := m.use(); s != nil {
		return s, nil
	}
	select {
	case m.opening <- struct{}{}:
		defer func() { <-m.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := m.use(); s != nil {
		return s, nil
	}
	if err := m.checkSchema(ctx); err != nil {
		return nil, err
	}
	m.attend()
	var in *session.Session
	err := m.calls.pastBroken(ctx, func() (err error) {
		in, err = session.Open(ctx, m.engine, session.Config{
			Host: m.host, App: m.app, PID: os.Getpid(), TTL: m.calls.ttl, Clock: m.clock, Beating: m.beating, Connecting: m.connecting, Beaten: m.beaten,
			Reconcile: m.reconcile, Holding: m.holding,
		})
		return err
	})
	if err != nil {
		m.depart()
		return nil, err
	}
	s := &clientSession{Session: in}
	s.hub = wait.New(in.Context(), listening{m.engine, in}, in.ID, wait.Config{
		Clock: m.clock, Log: m.log, Hearing: m.hearing, Looking: m.looking, Taking: m.taking, Listener: m.listener, Told: &m.polls,
		Safety: m.calls.ttl / 3, Limit: m.calls.ttl, Stray: m.unknown, Reclaimed: m.reclaimed,
	})
	lost := func() { m.lost(s) }
	if m.opened != nil {
		told := m.opened(in)
		lost = func() {
			m.lost(s)
			told()
		}
	}
	context.AfterFunc(in.Context(), lost)
	s.cohorts = newCohorts()
	s.batcher = newBatcher(m.engine, m.calls, m.clock)
	s.deadlock = deadlock.New(in.Context(), m.engine, deadlock.Config{Clock: m.clock, After: m.deadlock, Limit: m.calls.ttl, Report: m.deadlocks})
	m.mu.Lock()
	first := m.latest == nil
	m.latest = s
	m.mu.Unlock()
	stop := context.AfterFunc(m.calls.tidying, func() { in.End(ErrClosed) }) // however stuck the rest is
	m.running.Go(func() {
		defer stop()
		idle := m.retire(s)
		in.Stop(nil)
		s.hub.Wait()
		s.deadlock.Wait()
		if idle {
			m.rest(s)
		}
	})
	if first {
		m.first()
	}
	return s, nil
}

func (m *sessions) checkSchema(ctx context.Context) error {
	var schema driver.Schema
	err := m.calls.pastBroken(ctx, func() (err error) {
		schema, err = m.engine.Schema(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if schema.Database != "" {
		m.database.Store(schema.Database)
	}
	return schema.Check()
}

// attend tells the engine once that this client works through it.
func (m *sessions) attend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leave == nil {
		m.leave = m.engine.Attend(m.app, m.calls.ttl)
	}
}

// depart ends what attend began, for a client without a session: it keeps no connections of the
// application's pool.
func (m *sessions) depart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leave != nil {
		m.leave()
		m.leave = nil
	}
}

// retire waits for the end of a session. It ends the session, and returns true, once that was used
// for nothing for some TTLs: an idle client sends no statement, and lets its database sleep.
func (m *sessions) retire(s *clientSession) (idle bool) {
	tick := m.clock.NewTimer(m.calls.ttl)
	defer tick.Stop()
	for unused := 0; ; {
		select {
		case <-s.Context().Done():
			return false
		case <-tick.C:
		}
		m.calls.between(func(underWay bool) {
			if unused++; m.used.Swap(false) || underWay || !m.unused() || !s.hub.Empty() {
				unused = 0
			}
			if idle = unused == idleTTLs; idle {
				s.End(errIdle)
			}
		})
		if idle {
			return true
		}
		tick.Reset(m.calls.ttl)
	}
}

// rest takes an idle session out of the database, and closes the connections that the engine keeps
// for this client, unless another session was opened meanwhile.
func (m *sessions) rest(s *clientSession) {
	if err := m.remove(s.ID); err != nil {
		m.log.Debug("dblock: an idle client", "because", err)
	}
	m.opening <- struct{}{}
	defer func() { <-m.opening }()
	if m.last() == s {
		m.depart()
	}
}

// last is the latest session, alive or not; nil before the first.
func (m *sessions) last() *clientSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// use is alive for a call that works in the session.
func (m *sessions) use() *clientSession {
	if !m.used.Load() {
		m.used.Store(true)
	}
	return m.alive()
}

// alive is the latest session if it is alive, else nil.
func (m *sessions) alive() *clientSession {
	if s := m.last(); s != nil && s.Alive() {
		return s
	}
	return nil
}

var errMore = errors.New("statements that were cut off go on taking locks for it")

// end ends the latest session in good order. It is called once, by Close.
func (m *sessions) end() error {
	s := m.last()
	if s == nil {
		return nil
	}
	s.Stop(ErrClosed)
	return m.remove(s.ID)
}

// remove takes a session that is over out of the database.
func (m *sessions) remove(id string) error {
	began := m.clock.Now()
	for {
		err := m.bury(id)
		busy := errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry) // another is ending it, or a race was lost
		switch {
		case err == nil:
			return nil
		case !busy && !errors.Is(err, errMore) || m.clock.Now()-began >= contract.CleanupTimeout || m.calls.tidying.Err() != nil:
			return fmt.Errorf("ending session %s, which now expires by itself: %w", id, err)
		case busy:
			pause(m.calls.tidying, 20*time.Millisecond)
		}
	}
}

// bury ends a session in the database, and gives back what a statement that was cut off has taken
// for it all the same, after the client had looked for that: errMore, until there is nothing. What
// is behind a transaction of the application's goes with the dead.
func (m *sessions) bury(id string) error {
	var left []driver.Attempt
	err := m.calls.statement(m.calls.tidying, func(ctx context.Context) (err error) {
		if err = m.calls.pastBroken(ctx, func() error { return m.engine.EndSession(ctx, id) }); err == nil {
			left, err = m.engine.Orphans(ctx, id, 64)
		}
		return err
	})
	for _, has := range left {
		r := protocol.Undo(id, has.Name, has.Attempt)
		if has.Token != 0 { // a transaction that it guards may still be open
			r = protocol.TakeOver("", has.Name, driver.Holder{Session: id, Attempt: has.Attempt, Grant: driver.Grant{Token: has.Token}})
		}
		given := m.calls.statement(m.calls.tidying, func(ctx context.Context) error { // the engine tells the next holder
			_, _, err := m.engine.Remove(ctx, r)
			return err
		})
		if given == nil {
			err = errMore
		}
	}
	return err
}

// wait returns when nothing of any session runs any more.
func (m *sessions) wait() {
	m.running.Wait()
	m.depart()
}
