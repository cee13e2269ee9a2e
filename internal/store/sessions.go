package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/wait"
)

// idleTTLs is how many TTLs a session outlives its last use.
const idleTTLs = 4

var (
	errIdle = errors.New("the client has used its session for nothing")
	errMore = again{"statements that were cut off go on taking locks for it"}
)

// Keeper is the client as its sessions call it.
type Keeper interface {
	session.Client
	wait.Client
	// Unused reports that nothing is held, requested, or being undone.
	Unused() bool
	// Reclaimed is called when a lock was taken from a dead holder. because says why it is dead;
	// "": its lease has expired.
	Reclaimed(name string, holder protocol.Holder, because string)
	// First is called when the first session is open.
	First()
	// Opened is called with each session. It returns the function that is called after all locks of
	// the session are lost. For tests that move the clock.
	Opened(s *session.Session) (lost func())
	// Lost is called when a session has ended.
	Lost(s *Session)
}

// Sessions are the sessions of a client: one that is alive, and those that are about to end.
type Sessions struct {
	store  *Store
	keeper Keeper

	beating, connecting, hearing, looking, taking, deadlocks *outage.Report

	polls   atomic.Bool   // a session has logged why it polls
	opening chan struct{} // a token: one goroutine at a time opens a session

	sweeping  chan struct{}   // a token: one goroutine at a time sweeps, and has what follows
	nextSweep time.Duration   // no sweep begins before this time
	strangers map[string]bool // sessions of other databases that are copies of one

	used    atomic.Bool    // a session was used since retire last looked
	running sync.WaitGroup // sessions, and the goroutines of Go

	mu     sync.Mutex // protects the fields below
	latest *Session
	ended  map[string]bool // sessions whose processes were seen to have ended; at most mostStrangers
	leave  func()          // the engine's function to end Attend; nil without a session
}

// NewSessions makes the sessions of a client. It opens none.
func NewSessions(s *Store, keeper Keeper) *Sessions {
	report := func(what string) *outage.Report { return outage.New(s.config.Log, "dblock: "+what) }
	return &Sessions{
		store: s, keeper: keeper, opening: make(chan struct{}, 1), sweeping: make(chan struct{}, 1),
		strangers: map[string]bool{}, ended: map[string]bool{},
		beating: report("the heartbeat"), connecting: report("connecting for heartbeats"),
		hearing: report("listening for grants"), looking: report("looking for grants"),
		taking: report("taking over from the dead"), deadlocks: report("looking for deadlocks"),
	}
}

// Open returns the session that is alive, and opens one if there is none. If patient is false, Open
// returns ErrBusy rather than wait for a transaction of the application's that has locked the
// database.
func (m *Sessions) Open(ctx context.Context, patient bool) (s *Session, err error) {
	if s := m.use(); s != nil {
		return s, nil
	}
	within, done := m.store.call(ctx)
	policy := Briefly
	if !patient {
		policy.Tries = 1
	}
	err = m.store.Retry(within, policy, func() (err error) {
		s, err = m.tryOpen(within)
		return err
	})
	return s, done(err)
}

func (m *Sessions) tryOpen(ctx context.Context) (*Session, error) {
	select {
	case m.opening <- struct{}{}:
		defer func() { <-m.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := m.use(); s != nil {
		return s, nil
	}
	if err := m.store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	m.attend()
	config, folder := m.store.config, m.store.folder(ctx, true)
	var in *session.Session
	err := m.store.pastBroken(ctx, func() (err error) {
		in, err = session.Open(ctx, m.store.Engine, session.Config{
			Host: config.Host, App: config.App, PID: os.Getpid(), TTL: config.TTL, Clock: config.Clock, Folder: folder,
			First:   !m.store.HadSession(),
			Beating: m.beating, Connecting: m.connecting, Client: m.keeper,
		})
		return err
	})
	if err != nil {
		m.depart()
		return nil, err
	}
	if folder != "" && in.Unseen != nil {
		level := slog.LevelDebug
		if config.Crash.Path != "" { // the application has asked for it
			level = slog.LevelWarn
		}
		config.Log.Log(ctx, level, "dblock: others on this host cannot see the end of this process: after a crash its "+
			"locks move after the TTL", "folder", folder, "because", in.Unseen)
	}
	s := m.store.newSession(in, m, folder)
	lost := m.keeper.Opened(in)
	context.AfterFunc(in.Context(), func() {
		m.keeper.Lost(s)
		lost()
	})
	m.mu.Lock()
	first := m.latest == nil
	m.latest = s
	m.mu.Unlock()
	m.store.hadSession.Store(true)
	// The session ends with the client, even if other parts do not end.
	stop := context.AfterFunc(m.store.Tidying, func() { in.End(contract.ErrClosed) })
	m.running.Go(func() {
		defer stop()
		idle := m.retire(s)
		in.Stop(nil)
		s.hub.Wait()
		s.cycles.Wait()
		if idle {
			m.rest(s)
		}
		in.Life.End()
	})
	if first {
		m.keeper.First()
	}
	m.sweep(ctx, 0) // what an earlier process of the application has left on this host
	return s, nil
}

func (s *Store) newSession(in *session.Session, m *Sessions, folder crash.Folder) *Session {
	config := s.config
	session := &Session{
		Session: in, store: s, sessions: m,
		cycles: deadlock.New(in.Context(), s.Engine, deadlock.Config{
			Clock: config.Clock, After: config.Deadlock, Limit: config.TTL, Report: m.deadlocks,
		}),
	}
	session.hub = wait.New(in.Context(), backend{s.Engine, session}, in.ID, wait.Config{
		Clock: config.Clock, Log: config.Log, Hearing: m.hearing, Looking: m.looking, Taking: m.taking,
		Polling: &m.polls, Safety: config.TTL / 3, Limit: config.TTL, Client: m.keeper,
		Sweeps: folder != "" && in.Unseen == nil,
	})
	session.batch, session.turns = session.newBatch(), session.newTurns()
	return session
}

// SideConn is OnSideConn of the session that is alive. If that session ends meanwhile, the next one
// is used.
func (m *Sessions) SideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	for {
		s, err := m.Open(ctx, true)
		if err != nil {
			return err
		}
		if err = s.SideConn(ctx, do); err == nil || s.Alive() || ctx.Err() != nil || m.store.Closing() {
			return err
		}
	}
}

// attend registers this client with the engine, once.
func (m *Sessions) attend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leave == nil {
		m.leave = m.store.Engine.Attend(m.store.config.App, m.store.config.TTL)
	}
}

// depart ends the registration: without a session the client keeps no connection of the
// application's pool.
func (m *Sessions) depart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leave != nil {
		m.leave()
		m.leave = nil
	}
}

// retire waits for the end of a session. It ends a session that had no use for idleTTLs, and
// returns true: an idle client sends no statement, so that its database can sleep.
func (m *Sessions) retire(s *Session) (idle bool) {
	ttl := m.store.config.TTL
	tick := m.store.config.Clock.NewTimer(ttl)
	defer tick.Stop()
	for unused := 0; ; {
		select {
		case <-s.Context().Done():
			return false
		case <-tick.C:
		}
		m.store.between(func(inFlight bool) {
			if unused++; m.used.Swap(false) || inFlight || !m.keeper.Unused() || !s.hub.Empty() {
				unused = 0
			}
			if idle = unused == idleTTLs; idle {
				s.End(errIdle)
			}
		})
		if idle {
			return true
		}
		tick.Reset(ttl)
	}
}

// rest removes an idle session from the database, and closes the connections that the engine keeps
// for this client, unless another session was opened meanwhile.
func (m *Sessions) rest(s *Session) {
	if err := m.remove(s); err != nil {
		m.store.config.Log.Debug("dblock: an idle client", "because", err)
	}
	m.opening <- struct{}{}
	defer func() { <-m.opening }()
	if m.Last() == s {
		m.depart()
	}
}

// Last returns the latest session, alive or not; nil before the first.
func (m *Sessions) Last() *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// use is Alive, and marks the session as used.
func (m *Sessions) use() *Session {
	if !m.used.Load() {
		m.used.Store(true)
	}
	return m.Alive()
}

// Alive returns the latest session if it is alive, else nil.
func (m *Sessions) Alive() *Session {
	if s := m.Last(); s != nil && s.Alive() {
		return s
	}
	return nil
}

// Go runs f in a goroutine that Wait waits for. MUST be called within First.
func (m *Sessions) Go(f func()) { m.running.Go(f) }

// End ends the latest session, and removes it from the database. It is called once, by Close.
func (m *Sessions) End() error {
	s := m.Last()
	if s == nil {
		return nil
	}
	s.Stop(contract.ErrClosed)
	return m.remove(s)
}

// remove is Remove for a session that was this client's.
func (m *Sessions) remove(s *Session) error {
	return m.Remove(s.ID, m.keeper.Unused() && !s.HadUnknown())
}

// Remove removes an ended session from the database. empty is that of driver.Sessions.EndSession.
func (m *Sessions) Remove(id string, empty bool) error {
	policy := Briefly
	policy.Limit = contract.CleanupTimeout
	err := m.store.Retry(m.store.Tidying, policy, func() error { return m.tryRemove(id, empty) })
	if err != nil {
		return fmt.Errorf("ending session %s, which now expires by itself: %w", id, err)
	}
	return nil
}

// tryRemove ends a session in the database. It also releases the locks and places of a session that
// may not be empty: a statement that was cut off may have run after the client had read them. It
// returns errMore until none is left. A lock behind a transaction of the application's expires with
// the session.
func (m *Sessions) tryRemove(id string, empty bool) error {
	end := func(empty bool) error {
		return m.store.Call(m.store.Tidying, func(ctx context.Context) error {
			return m.store.pastBroken(ctx, func() error { return m.store.Engine.EndSession(ctx, id, empty) })
		})
	}
	if err := end(empty); err != nil || empty {
		return err
	}
	found, taken, err := m.take(m.store.Tidying, id, math.MaxInt64, func(string, protocol.Holder) {})
	switch {
	case err != nil:
		return err
	case found == 0:
		return end(true)
	case taken > 0:
		return errMore
	}
	return nil
}

// Wait returns when nothing of any session runs any more.
func (m *Sessions) Wait() {
	m.running.Wait()
	m.depart()
}
