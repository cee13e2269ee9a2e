// Package session keeps a client alive in the database: one row and one heartbeat, however many
// locks the client holds.
//
// # Trust
//
// A session is trusted until its deadline: the moment before its last successful heartbeat was
// sent, plus the TTL, less a margin for clock drift and the round trip. The database counts the
// same TTL from the moment when it ran the heartbeat, which is later. So the session ends here
// before the database grants its locks to another one. No clock is ever compared with another.
//
// A session ends once and for good: at its deadline, when a heartbeat finds it dead, when the
// tables were migrated to a version that this build cannot work with, or when the database turns
// out to be another. A heartbeat that succeeds after the deadline does not revive the session,
// because callers may have been notified of the end by then.
//
// # Heartbeats
//
// A heartbeat is due each fifth of the TTL. It goes over a reserved connection, which the
// application cannot keep busy. It is not cancelled while its answer can still be of use: a driver
// whose context ends closes the connection, and on a slow machine the next connection would be as
// slow. While there is no reserved connection, or while the last heartbeat on it is not answered,
// heartbeats go over the application's pool, one at a time, each for no longer than an interval.
//
// Connecting is no part of the heartbeat. A connect goes on beside the heartbeats and may take a
// TTL. After an interval without success a second connect starts beside the first one, which after
// a failover may go to a dead address. The session uses the first connection that is made. It
// closes a reserved connection that fails. When a connection is late with an answer, the session
// makes a second one beside it, until one of them answers within an interval.
//
// # Listening
//
// A session listens on the reserved connection that answered last within an interval. If that
// connection is late or lost, the session moves to another connection once that one has answered.
// The listener then ends, and its caller begins anew.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
)

const (
	beatsPerTTL = 5 // four heartbeats may fail
	// claimsEvery is the number of heartbeats between two lists of the session's locks and places
	// in queues. A session that holds a lock, and had no more than fewClaims of these, lists them
	// with every heartbeat: so it learns of Break and Ask within a heartbeat interval without a
	// listener.
	claimsEvery = 5
	fewClaims   = 64
	driftShare  = 100 // two clocks may differ in rate by one part in this
)

// The reasons why a session ends.
var (
	ErrExpired = errors.New("no heartbeat reached the database within the TTL")
	ErrKilled  = errors.New("the database declared the session dead")
)

// Engine is the part of an engine that a session needs.
type Engine interface {
	OpenSession(ctx context.Context, s driver.Session) error
	Upkeep(ctx context.Context, session string) (driver.Upkeep, error)
	Beat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)
	Lending() context.Context
	OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error
}

// Config is the same for all sessions of a client, except First.
type Config struct {
	First     bool // the client has had no session before
	Host, App string
	PID       int
	TTL       time.Duration
	Clock     clock.Clock // must go on while the machine sleeps
	Folder    crash.Folder
	// Beating and Connecting report the outages of heartbeats, and of connecting for them.
	Beating, Connecting *outage.Report
	Client              Client
}

// Client is the client as its sessions call it.
type Client interface {
	// Beaten is called with each heartbeat that was answered or failed, with its duration and its
	// error. Several goroutines may call it at once.
	Beaten(took time.Duration, err error)
	// Reconcile compares the claims of a session in the database with those of the client. It is
	// called every few heartbeats, and after each reconnect, with a function that lists claims.
	Reconcile(ctx context.Context, s *Session, list List) error
	// Holding reports whether the client believes that it holds anything.
	Holding() bool
}

// List is driver.Upkeep.Claims for a session. It lists all claims after a reconnect, since a server
// that has failed may have undone releases, and after NoteUnknown.
type List func(ctx context.Context, known []driver.Claim) ([]driver.Claim, error)

// Session is one session of a client in the database.
type Session struct {
	ID     string
	Life   *crash.Life // proves to others of this host that the process has ended; nil where it cannot
	Unseen error       // why it cannot: then the lease alone decides

	engine   Engine
	config   Config
	ctx      context.Context // ends with the session; its cause is the reason
	end      context.CancelCauseFunc
	done     sync.WaitGroup
	check    chan struct{} // asks for a reconciliation with the next heartbeat, now
	settle   chan chan struct{}
	unknowns atomic.Int64 // the number of calls of NoteUnknown

	deadline *clock.Deadline

	mu        sync.Mutex    // protects the fields below
	tried     time.Duration // when the latest heartbeat was sent that was answered or failed
	listening listening
	moved     chan struct{} // closed when the session listens on another connection, or on none
}

// Open writes a new session and starts its heartbeats. ctx bounds the opening, not the session.
func Open(ctx context.Context, engine Engine, config Config) (*Session, error) {
	s := &Session{
		ID: rand.Text(), engine: engine, config: config,
		check: make(chan struct{}, 1), settle: make(chan chan struct{}),
		listening: listening{over: func() {}}, moved: make(chan struct{}),
	}
	s.Life, s.Unseen = config.Folder.Register(s.ID)
	sent := config.Clock.Now()
	err := engine.OpenSession(ctx, driver.Session{ID: s.ID, Host: config.Host, PID: config.PID, App: config.App,
		TTL: config.TTL, First: config.First})
	if err != nil {
		s.Life.End()
		return nil, err
	}
	s.deadline, s.tried = clock.NewDeadline(config.Clock, s.trusted(sent)), sent
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.done.Go(s.watch)
	s.done.Go(s.beat)
	return s, nil
}

// Context ends when the session ends. The cause is the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Alive reports whether the session is still trusted, by the clock now. After the deadline it ends
// the session.
func (s *Session) Alive() bool {
	if s.ctx.Err() == nil && s.deadline.Passed() {
		s.end(ErrExpired)
	}
	return s.ctx.Err() == nil
}

// Deadline returns until when the session is trusted if no further heartbeat succeeds, by the clock
// of its Config.
func (s *Session) Deadline() time.Duration { return s.deadline.At() }

// Tried returns when the latest heartbeat was sent that has been answered or has failed, by the
// clock of its Config.
func (s *Session) Tried() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried
}

// Ping sends a heartbeat over the application's pool. ErrKilled where the session is dead.
func (s *Session) Ping(ctx context.Context) error {
	return s.sendAt(ctx, s.config.Clock.Now(), s.engine.Beat)
}

// NoteUnknown is Check after a statement with an unknown outcome, which may have left claims that
// the client does not know, or may still leave them: the reconciliation lists all claims, and the
// one after the next heartbeat does so again.
func (s *Session) NoteUnknown() {
	s.unknowns.Add(1)
	s.Check()
}

// HadUnknown reports whether NoteUnknown was ever called.
func (s *Session) HadUnknown() bool { return s.unknowns.Load() > 0 }

// Check requests a heartbeat and a reconciliation now.
func (s *Session) Check() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// Settle is Check that waits until all heartbeats and lists in flight are answered, or until ctx
// ends. For tests that move the clock: what is in flight then looks late.
func (s *Session) Settle(ctx context.Context) {
	settled := make(chan struct{})
	select {
	case s.settle <- settled:
	case <-s.ctx.Done():
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-settled:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}

// End ends the session here, with a reason. It sends no statement.
func (s *Session) End(reason error) { s.end(reason) }

// Stop is End that waits until no goroutine of the session runs.
func (s *Session) Stop(reason error) {
	s.End(reason)
	s.done.Wait()
}
