// Package session keeps a client alive in the database: one row, one heartbeat, however many locks
// hang on it.
//
// # Trust
//
// A session may be believed in until its deadline: the moment before its last successful heartbeat
// was sent, plus the TTL, less a margin for the drift of two clocks and for the way there and back.
// The database counts the same TTL from the moment when it ran the heartbeat, which is later. So a
// session that ends here at its deadline has ended before the database lets anybody else in,
// without a clock ever being compared with another.
//
// A session ends once and for good: past its deadline, when a heartbeat finds it dead, when the
// tables were migrated to a version that this build cannot work with, or when the database turns
// out to be another. A heartbeat that succeeds after the deadline does not revive it, since by then
// others may have been told.
//
// # Heartbeats
//
// A heartbeat is due each fifth of the TTL. It goes over a reserved connection, which the
// application cannot keep busy, and is never cut off by the clock while it can still be of use: a
// driver that is told to stop waiting closes the connection, and on a slow machine the next
// connection would be as slow as the last. While there is no reserved connection, or while the last
// heartbeat on it is not answered, heartbeats go over the application's pool, one at a time, each
// for no longer than an interval.
//
// Connecting is no part of that. It goes on beside the heartbeats, for as long as a TTL; after an
// interval without success a second connect starts beside the first one, which after a failover may
// go to an address that is dead. The first connection that is made is used. A reserved connection
// is given up when it fails. One that is late with an answer gets another one beside it, until one
// of them answers within an interval.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

const (
	beatsPerTTL = 5 // four heartbeats may fail
	// claimsEvery is after how many heartbeats a session lists what it has in the database. One
	// that holds something does with each, so that it hears within a heartbeat that this was taken
	// away, or is asked for, though it may listen to nothing; but not where the list is longer than
	// fewClaims.
	claimsEvery = 5
	fewClaims   = 64
	driftShare  = 100 // two clocks may differ in rate by one part in this
)

// The reasons for which a session ends.
var (
	ErrExpired = errors.New("no heartbeat reached the database within the TTL")
	ErrKilled  = errors.New("the database declared the session dead")
)

// Store is what a session needs of an engine.
type Store interface {
	OpenSession(ctx context.Context, s driver.Session) error
	Upkeep(ctx context.Context) (driver.Upkeep, error)
	Beat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)
	Beside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error
}

// Config is the same for all sessions of a client.
type Config struct {
	Host, App string
	PID       int
	TTL       time.Duration
	Clock     Clock
	Log       *slog.Logger
	// Reconcile compares what a session has in the database with what the client believes. It is
	// called with a way to list it, every few heartbeats and whenever the connection was made anew.
	Reconcile func(ctx context.Context, s *Session, list func(context.Context) ([]driver.Claim, error)) error
	Holding   func() bool // whether the client holds anything, as far as it knows
}

// Session is one life of a client in the database.
type Session struct {
	ID string

	store  Store
	config Config
	ctx    context.Context // ends with the session; its cause is the reason
	end    context.CancelCauseFunc
	done   sync.WaitGroup
	check  chan struct{} // asks for a reconciliation with the next heartbeat, now

	mu       sync.Mutex // protects deadline
	deadline time.Duration
}

// Open writes a new session and begins to keep it alive. ctx bounds the opening, not the session.
func Open(ctx context.Context, store Store, config Config) (*Session, error) {
	s := &Session{ID: rand.Text(), store: store, config: config, check: make(chan struct{}, 1)}
	sent := config.Clock()
	err := store.OpenSession(ctx, driver.Session{ID: s.ID, Host: config.Host, PID: config.PID, App: config.App, TTL: config.TTL})
	if err != nil {
		return nil, err
	}
	s.deadline = s.trusted(sent)
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.done.Go(s.watch)
	s.done.Go(s.beat)
	return s, nil
}

// Context ends when the session ends; its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// Alive reports whether the session may still be believed in, by the clock as it is now.
func (s *Session) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx.Err() == nil && s.config.Clock() < s.deadline
}

// Deadline is until when the session may be believed in, on the clock of its Config, if no further
// heartbeat succeeds.
func (s *Session) Deadline() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// Check asks for a heartbeat with a reconciliation now.
func (s *Session) Check() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// Stop ends the session here, with a reason, and waits until nothing of it runs. The database is
// told by others.
func (s *Session) Stop(reason error) {
	s.end(reason)
	s.done.Wait()
}
