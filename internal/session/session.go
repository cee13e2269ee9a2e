// Package session keeps a client alive in the database: one row, one heartbeat, however many locks hang on it.
//
// # Trust
//
// A session may be believed in until its deadline: the moment before its last successful heartbeat was sent, plus
// the TTL, less a margin for the drift of two clocks and for the way there and back. The database counts the same TTL
// from the moment when it ran the heartbeat, which is later. So a session that ends here at its deadline has ended
// before the database lets anybody else in, without a clock ever being compared with another.
//
// A session ends once and for good: past its deadline, when a heartbeat finds it dead, when the tables were migrated to a
// version that this build cannot work with, or when the database turns out to be another. A heartbeat that succeeds after the deadline does not revive it, since by then
// others may have been told.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

const (
	beatsPerTTL = 5 // four heartbeats may fail
	// claimsEvery is after how many heartbeats a session lists what it has in the database. One that holds something does with
	// each, so that it hears within a heartbeat that this was taken away, or is asked for, though it may listen to nothing; but
	// not where the list is longer than fewClaims.
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
	Beside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error
}

// Config is the same for all sessions of a client.
type Config struct {
	Host, App string
	PID       int
	TTL       time.Duration
	Clock     Clock
	Log       *slog.Logger
	// Reconcile compares what a session has in the database with what the client believes. It is called with a
	// way to list it, every few heartbeats and whenever the connection was made anew.
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

// Deadline is until when the session may be believed in, on the clock of its Config, if no further heartbeat succeeds.
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

// Stop ends the session here, with a reason, and waits until nothing of it runs. The database is told by others.
func (s *Session) Stop(reason error) {
	s.end(reason)
	s.done.Wait()
}

// trusted is until when a heartbeat that was sent then, and has been answered now, may be relied upon.
func (s *Session) trusted(sent time.Duration) time.Duration {
	roundTrip := s.config.Clock() - sent
	margin := s.config.TTL/driftShare + 2*roundTrip
	return sent + s.config.TTL - min(margin, s.config.TTL/4)
}

// extend moves the deadline, unless it has passed.
func (s *Session) extend(sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Clock() >= s.deadline {
		s.end(ErrExpired)
		return
	}
	s.deadline = max(s.deadline, s.trusted(sent))
}

// watch ends the session at its deadline. It looks at the clock more often than it would have to, since timers stand
// still while the machine sleeps.
func (s *Session) watch() {
	for {
		s.mu.Lock()
		left := s.deadline - s.config.Clock()
		s.mu.Unlock()
		if left <= 0 {
			s.end(ErrExpired)
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(min(left, s.config.TTL/20)):
		}
	}
}

// beat sends the heartbeats, over a connection of their own that is made anew after every failure.
func (s *Session) beat() {
	interval := s.config.TTL / beatsPerTTL
	var up driver.Upkeep
	defer func() {
		if up != nil {
			_ = up.Close()
		}
	}()
	few := true             // the session had no more than fewClaims when it last looked
	due := s.config.Clock() // the connection is made at once, the first heartbeat goes with it
	for beats := 0; ; beats++ {
		checked := false
		for !checked && s.config.Clock() < due {
			select {
			case <-s.ctx.Done():
				return
			case <-s.check:
				checked = true
			case <-time.After(due - s.config.Clock()):
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		began := s.config.Clock()
		fresh := up == nil
		err := s.once(&up, interval)
		if err == nil && beats > 0 && (fresh || checked || few && s.config.Holding() || beats%claimsEvery == 0) {
			err = s.within(interval, func(ctx context.Context) error {
				return s.config.Reconcile(ctx, s, func(ctx context.Context) ([]driver.Claim, error) {
					claims, err := up.Claims(ctx, s.ID)
					few = len(claims) <= fewClaims
					return claims, err
				})
			})
		}
		due = began + interval
		if err != nil && s.ctx.Err() == nil {
			s.config.Log.Warn("dblock: heartbeat failed", "session", s.ID, "error", err)
			if up != nil {
				_ = up.Close()
				up = nil
			}
			due = s.config.Clock() + interval/4 + mathrand.N(interval/4)
		}
	}
}

func (s *Session) within(limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	return f(ctx)
}

// once sends one heartbeat, over a new connection where there is none. Each step may take as long as limit.
func (s *Session) once(up *driver.Upkeep, limit time.Duration) error {
	if *up == nil {
		err := s.within(limit, func(ctx context.Context) error {
			conn, err := s.store.Upkeep(ctx)
			if err == nil {
				*up = conn
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.within(limit, func(ctx context.Context) error {
		sent := s.config.Clock()
		alive, err := (*up).Heartbeat(ctx, s.ID, s.config.TTL)
		misfit := new(driver.SchemaError)
		switch {
		case errors.As(err, &misfit), errors.Is(err, driver.ErrReplaced):
			s.end(err)
			return err
		case err != nil:
			return err
		case !alive:
			s.end(ErrKilled)
			return ErrKilled
		}
		s.extend(sent)
		return nil
	})
}
